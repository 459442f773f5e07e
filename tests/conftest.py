"""Settings shared by all tests."""

import torch
from hypothesis import settings

# Property tests must not depend on how busy the machine is, and must find the same examples in every run.
settings.register_profile("cofrnet", deadline=None, derandomize=True, max_examples=60, database=None)
settings.load_profile("cofrnet")

# Tests run side by side: two threads each are enough to test that their number does not matter.
torch.set_num_threads(2)
