"""Every tolerance of the tests, once, with its reason."""

import torch

# The fused kernels may fuse a multiplication and an addition (one rounding instead of two), the reference does not:
# a few units in the last place per rung, relative to 1 + |value|.
ROUNDING = {torch.float32: 2e-6, torch.float64: 4e-15}

# Products of up to 12 slopes, each with a few rounding errors of its own.
PRODUCTS = {torch.float32: 2e-5, torch.float64: 4e-14}

# A float64 ladder against the exact rational value: rounding grows with the condition of the fraction, and the
# examples keep |K_d| away from 0.
EXACT = 1e-9

# Central differences with step h = 1e-6 in float64: h^2 truncation times third derivatives, plus 1e-16/h rounding.
DIFFERENCES = 1e-5

# The smooth reciprocal differs from 1/t by a factor 1/(1 + eps^2/t^2): with eps = 1e-6 and tails above 0.01 this is
# 1e-8 a rung, magnified by the slopes of the rungs above.
SMALL_EPSILON = 1e-3

# Weights after a dozen steps in float32, by two ways that round differently: Adam divides by the size of a gradient, so
# one near 0 carries its rounding into a step of the common length.
STEPS = {"rtol": 1e-3, "atol": 1e-4}

# One row at two places of a block, in float32: products of some processors add dozens of terms in another order there.
PLACES = {"rtol": 1e-5, "atol": 1e-5}
