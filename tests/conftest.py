"""Settings shared by all tests."""

import torch
from hypothesis import settings

# Property tests must not depend on how busy the machine is, and must find the same examples in every run.
settings.register_profile("cofrnet", deadline=None, derandomize=True, max_examples=60, database=None)
settings.load_profile("cofrnet")

# Tests run side by side, so each takes one thread; those about threads ask for more themselves.
torch.set_num_threads(1)
