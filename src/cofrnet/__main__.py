"""``python -m cofrnet``: the command line."""

from cofrnet.cli import main

main()
