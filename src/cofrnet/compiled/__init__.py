"""Code compiled for the processor, on plain arrays (numba), and what can be chosen about it. Needs no torch.

A module is imported when something in it is first used; `settings` needs nothing.
"""
