"""Experiments that take longer than a test may: their results are kept as JSON lines in `experiments/results`."""
