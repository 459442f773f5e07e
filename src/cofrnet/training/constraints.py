"""Constraints that hold exactly, kept by projection after every step of the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from cofrnet.nn import CoFrNet

__all__ = ["monotone_projection"]


def monotone_projection(
    model: CoFrNet, signs: Mapping[int, int], low: Tensor, high: Tensor, still: Sequence[int] = ()
) -> Callable[[], None]:
    """A function that makes the score monotone in some features, by the least change of each number.

    The value of a ladder rises with x_j where (-1)^k w_k >= 0 at every rung, if every tail above rung 0 stays where the
    reciprocal falls: t_k >= eps, which holds where each a_k >= eps on the whole range of x_j (then r >= 0, so that
    t_k >= a_k). For such curves, with a head of one sign and a slope of that sign on the linear path, the score rises
    or falls everywhere on the range; full and subset ladders do not read the feature at all.

    signs : {feature: +1 or -1}; low, high : (p,), the range of each feature; still : features that the score must not
    depend on.
    """
    spec = model.spec
    if model.curves is not None and model.curves.is_uneven:
        raise ValueError("monotone features must have curves of one depth; got uneven depths.")
    curved = {feature: place for place, feature in enumerate(spec.curved_features)}
    epsilon, m = float(spec.epsilon or 0), spec.ladders_per_feature

    def ladders_of(feature: int) -> slice | None:
        """Its curves, by their places in the head."""
        if model.curves is None or feature not in curved:
            return None
        return slice(curved[feature] * m, (curved[feature] + 1) * m)

    def read_no_curves(full: Tensor | None, ladders: slice) -> None:
        if full is not None and spec.variant == "S":
            full[:, spec.n_features + ladders.start : spec.n_features + ladders.stop] = 0

    def project() -> None:
        with torch.no_grad():
            # What full ladders read, (rungs of all, features); their weights are flat where depths differ.
            full = None if model.full is None else model.full.weight.view(-1, model.full.n_features)
            for feature in still:
                for read in (model.linear, full):
                    if read is not None:
                        read[..., feature] = 0
                if (ladders := ladders_of(feature)) is not None:
                    model.head[..., ladders] = 0
                    read_no_curves(full, ladders)
            for feature, sign in signs.items():
                if model.linear is not None:
                    slope = model.linear[..., feature]
                    slope.copy_((sign * slope).clamp_min(0) * sign)
                if full is not None:
                    full[:, feature] = 0
                ladders = ladders_of(feature)
                if ladders is None or model.curves is None:
                    continue
                weight, bias = model.curves.weight[..., ladders], model.curves.bias[..., ladders]  # ([M,] d+1, m)
                alternate = torch.ones(weight.shape[-2], 1, dtype=weight.dtype)
                alternate[1::2] = -1
                weight.copy_((alternate * weight).clamp_min(0) * alternate)
                least = torch.minimum(weight * low[feature], weight * high[feature])
                bias[..., 1:, :] = torch.maximum(bias[..., 1:, :], epsilon - least[..., 1:, :])
                head = model.head[..., ladders]
                head.copy_((sign * head).clamp_min(0) * sign)
                read_no_curves(full, ladders)

    return project
