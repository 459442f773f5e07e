"""The mathematics of ladders: values, sensitivities, convergents and continuants. Needs torch alone."""

from cofrnet.core.euler import EulerLadder, euler_form, fraction, polynomial_ladders
from cofrnet.core.ladder import (
    backend,
    clamped,
    continuant_sensitivities,
    continuants,
    convergents,
    feature_ladders,
    feature_slopes,
    ladder,
    prepare,
    sensitivities,
    tails,
)
from cofrnet.core.paths import mean_sensitivities, secant_sensitivities
from cofrnet.core.poles import DEFAULT_EPSILON, Pole, curvature, reciprocal, slope

__all__ = [
    "DEFAULT_EPSILON",
    "EulerLadder",
    "Pole",
    "backend",
    "clamped",
    "continuant_sensitivities",
    "continuants",
    "convergents",
    "curvature",
    "euler_form",
    "feature_ladders",
    "feature_slopes",
    "fraction",
    "ladder",
    "mean_sensitivities",
    "polynomial_ladders",
    "prepare",
    "reciprocal",
    "secant_sensitivities",
    "sensitivities",
    "slope",
    "tails",
]
