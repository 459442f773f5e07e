"""Explanations of rows: slopes of the score in the user's units (IC), and contributions from a baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.explain import inputs
from cofrnet.explain.data import LocalExplanation
from cofrnet.explain.subject import Subject

__all__ = ["contributions", "gradients"]

Floats = NDArray[np.floating[Any]]

TOLERANCE = 1e-4  # of the range of the scores


def gradients(subject: Subject, x: Tensor, data: NDArray[Any], unit_slopes: Floats) -> LocalExplanation:
    """Slopes of every score by every feature, in the unit of the score per unit of the feature.

    Slopes by the inputs of a feature times theirs by the feature; NaN for categories and missing values, which have
    none.

    Shapes: x (n, p), the inputs; data (n, P), the rows; unit_slopes (n, p), of the inputs by their features.
    """
    by_inputs = inputs.slopes(subject.model, x).double().numpy() * subject.scale[:, None]
    values = subject.by_column(by_inputs * unit_slopes[:, None, :])
    q = len(subject.scale)
    return LocalExplanation(
        method="gradient",
        values=values,
        base_values=np.full(q, np.nan),
        scores=subject.scores(x),
        gap=np.zeros((len(x), q)),
        clamped=inputs.clamped_share(subject.model, x).double().numpy(),
        data=data,
        feature_names=subject.feature_names,
        output_names=subject.output_names,
        unit=f"{subject.unit}, per unit of the feature",
        definition="slope of the score by each feature at the row",
    )


def contributions(
    subject: Subject, x: Tensor, data: NDArray[Any], baselines: Tensor, description: str
) -> LocalExplanation:
    """What each feature adds on the way from the baseline to the row; the mean where there are several baselines.

    Shapes: x (n, p); data (n, P); baselines (m, p).
    """
    scores, base = subject.scores(x), subject.scores(baselines)
    everything = np.concatenate([scores, base])
    span = np.ptp(everything, axis=0) / subject.scale
    tolerance = torch.as_tensor(np.maximum(0.5 * TOLERANCE * span, 1e-6), dtype=x.dtype)
    n, q, p = len(x), *subject.model.head.shape[-2:-1], x.shape[1]
    total, gap = torch.zeros(n, q, p, dtype=torch.float64), torch.zeros(n, q, dtype=torch.float64)
    for baseline in baselines:
        found = inputs.contributions(subject.model, x, baseline, tolerance)
        total += found.values / len(baselines)
        gap += found.gap / len(baselines)
    return LocalExplanation(
        method="integrated",
        values=subject.by_column(total.numpy() * subject.scale[:, None]),
        base_values=base.mean(0),
        scores=scores,
        gap=gap.numpy() * subject.scale,
        clamped=inputs.clamped_share(subject.model, x).double().numpy(),
        data=data,
        feature_names=subject.feature_names,
        output_names=subject.output_names,
        unit=subject.unit,
        definition=f"what each feature adds to the score on the way from {description} to the row",
    )
