"""Measurements of cofrnet beside the alternatives, in one run: `python -m benchmarks`, or `make bench`."""
