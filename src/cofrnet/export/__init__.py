"""A fitted model as something else: formulas and standalone code."""
