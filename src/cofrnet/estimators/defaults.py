"""How to train where the user leaves it to us: rules for the learning rate, the batch and the weight decay.

They were chosen on held-out training rows of fourteen tables, never for one of them alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from cofrnet.training import LoopOptions

__all__ = ["AutomaticDecay", "loop_options"]

MOST_EPOCHS, FEWEST_EPOCHS = 40, 10
EPOCH_ROWS, EPOCH_ROWS_OF_CURVES = 350_000, 500_000


def loop_options(
    n: int,
    p: int,
    *,
    additive: bool,
    null_loss: float,
    max_epochs: int | Literal["auto"],
    batch_size: int,
    learning_rate: float | Literal["auto"],
    weight_decay: float | Literal["auto"],
    patience: int | None,
    members: int = 1,
    stages: int = 1,
    share: float = 1.0,
) -> LoopOptions:
    """Options of the epoch loop for n rows of p inputs, with every "auto" replaced by a number or a rule.

    Batches are at most an eighth of the rows: a few steps an epoch even where rows are few. `additive` models (curves
    alone) bear larger steps. Epochs are fewer where rows are many: the steps that they make count, not they. They are
    divided among the `stages` of a training, each of which takes a `share` of the weight decay. Of several `members`
    each is decayed less: their mean varies less than they do.
    """
    batch = min(batch_size, max(16, n // 8))
    if learning_rate == "auto":
        learning_rate = 0.05 if additive else min(max(0.02 * n / 5000, 0.01), 0.04)
    rate = float(learning_rate)
    if max_epochs == "auto":
        rows = EPOCH_ROWS_OF_CURVES if additive else EPOCH_ROWS
        max_epochs = min(max(round(rows / n), FEWEST_EPOCHS), MOST_EPOCHS)
    epochs = max(1, int(max_epochs) // stages)
    decay: Any
    if weight_decay == "auto":
        path = 0.5 * rate * epochs * max(1, round(n / batch))  # how far a weight can go, all in all
        share *= min(1.0, math.sqrt(100 * p / n)) if additive else 1.0
        share *= members ** (-1 / 6)
        decay = AutomaticDecay(n, p, null_loss, share, path * math.sqrt(p) / 0.6)
    else:
        decay = share * float(weight_decay)
    return LoopOptions(epochs, batch, rate, decay, patience=patience)


@dataclass(frozen=True)
class AutomaticDecay:
    """Weight decay as a function of the validation loss: noisy tables and wide ones get more.

        8.5 (noise/signal)^0.6 p^0.75 n^-0.2, from 1 to 32,     noise = loss / loss of the best constant = 1 - signal

    times `share`, which is small for additive models of narrow tables: they have little to overfit with. At most
    `most`: a training of few steps could not hold any weight above a small size against more.
    """

    n: int
    p: int
    null_loss: float
    share: float
    most: float

    def __call__(self, loss: float) -> float:
        """The decay of the whole training."""
        noise = min(0.95, loss / self.null_loss) if math.isfinite(loss) and self.null_loss > 0 else 0.95
        decay = 8.5 * (noise / (1 - noise)) ** 0.6 * self.p**0.75 * self.n**-0.2
        return min(self.share * min(max(decay, 1.0), 32.0), self.most)
