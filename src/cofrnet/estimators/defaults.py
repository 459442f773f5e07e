"""How to train where the user leaves it to us: rules for members, epochs, learning rate, batch and weight decay.

They were chosen on held-out rows of some three hundred tables, real and generated, never for one of them alone; none of
those rows is a test row of `docs/results.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cofrnet.training import Decay, LoopOptions

__all__ = [
    "LADDERS_PER_FEATURE",
    "N_LADDERS",
    "AutomaticDecay",
    "Goal",
    "automatic_members",
    "has_fewer_ladders",
    "loop_options",
]

Goal: TypeAlias = Literal["two classes", "classes", "numbers"]

N_LADDERS, LADDERS_PER_FEATURE = 28, 7
MOST_EPOCHS, FEWEST_EPOCHS = 50, 10
EPOCH_ROWS: dict[Goal, int] = {"two classes": 350_000, "classes": 700_000, "numbers": 700_000}
EPOCH_ROWS_OF_CURVES = 500_000
FEWEST_MEMBERS, MOST_MEMBERS = 3, 8
READ_BY_MEMBERS = 250_000  # numbers of the table that all read in an epoch
STEPS_AN_EPOCH = 16  # at least, but of sixteen rows or more
ROWS_OF_STEPS = 500  # that these steps cost as much as, whatever they read
FINDING_OUT = 0.25  # share of the epochs
MOST_DECAY = 32.0
NARROW = 100  # inputs: full ladders that read no more have the decay of other weights
WIDE = 100  # columns: those of more keep all threads busy with one member
MOST_WIDTH, MOST_OF_MATRICES = 5.0, 1.5  # how many times that decay at most; times the most decay of others
FEW_STEPS = 400  # of a whole training; fewer cannot hold weights against as much decay


def automatic_members(n: int, columns: int, pairs: bool = False) -> int:
    """How many members a fit to n rows has, if the user leaves it to us: as many as take little time.

        250 000 / ((n + 500) columns), from 3 to 8; from 1 with ladders of pairs, or more than 100 columns

    Means of members vary less than each of them, and what members hold out in turn tells more than one such part; both
    matter most where rows are few. Three are trained by turns on two threads in less than twice the time of one; but
    not where there are pairs, or so many columns that one member keeps all threads busy.
    """
    fewest = 1 if pairs or columns > WIDE else FEWEST_MEMBERS
    return min(max(READ_BY_MEMBERS // ((n + ROWS_OF_STEPS) * columns), fewest), MOST_MEMBERS)


def has_fewer_ladders(variant: str, n_ladders: int, ladders_per_feature: int) -> bool:
    """Whether a model has fewer ladders than by default, as those have who want to read a formula."""
    return (variant != "D" and n_ladders < N_LADDERS) or (variant != "F" and ladders_per_feature < LADDERS_PER_FEATURE)


def loop_options(
    n: int,
    columns: int,
    *,
    reads: int,
    goal: Goal,
    additive: bool,
    linear_loss: float | None,
    max_epochs: int | Literal["auto"],
    batch_size: int,
    learning_rate: float | Literal["auto"],
    weight_decay: float | Literal["auto"],
    patience: int | None,
    members: int = 1,
    stages: int = 1,
    share: float = 1.0,
) -> LoopOptions:
    """Options of the epoch loop for n rows of so many columns, with every "auto" replaced by a number or a rule.

    Batches are at most a sixteenth of the rows: a few hundred steps even where rows are few. `additive` models (curves
    alone) bear larger steps, and need little decay where columns are few. Epochs are fewer where rows are many: the
    steps that they make count, not they; two classes are learnt in half as many as numbers or more classes. The rate
    grows with the rows for classes, and is one for numbers. Epochs are divided among the `stages` of a training, each
    of which takes a `share` of the weight decay. Of several `members` each is decayed less: their mean varies less than
    they do. Full ladders that read many inputs, as `reads` counts them, are decayed more. `linear_loss` is that of the
    linear model on validation rows; where there are none, what the ladders gain on it is not known, and the decay grows
    with the columns.
    """
    batch = min(batch_size, max(16, n // STEPS_AN_EPOCH))
    if learning_rate == "auto":
        by_rows = 0.02 if goal == "numbers" else min(max(0.02 * n / 5000, 0.015), 0.04)
        learning_rate = 0.05 if additive else by_rows
    rate = float(learning_rate)
    if max_epochs == "auto":
        rows = EPOCH_ROWS_OF_CURVES if additive else EPOCH_ROWS[goal]
        max_epochs = min(max(round(rows / n), FEWEST_EPOCHS), MOST_EPOCHS)
    epochs = max(1, int(max_epochs) // stages)
    decay: float | AutomaticDecay
    if weight_decay != "auto":
        decay = share * float(weight_decay)
    elif linear_loss is None:
        decay = share * min(max(0.8 * columns, 2.0), MOST_DECAY)
    else:
        short = min(1.0, int(max_epochs) * max(1, round(n / batch)) / FEW_STEPS)
        share *= 2 * min(1.0, 60 * columns / n) if additive else short
        most = MOST_DECAY if additive else MOST_DECAY * short
        width = min(max(reads / NARROW, 1.0), MOST_WIDTH)
        decay = AutomaticDecay(linear_loss, share * members ** (-1 / 6), most, width)
    return LoopOptions(epochs, batch, rate, decay, patience=patience)


@dataclass(frozen=True)
class AutomaticDecay:
    """Weight decay by what the ladders are good for: the share of the linear model's loss that they take away.

        2 share / gain, at most `most`,     gain = 1 - lowest validation loss so far / that of the linear model

    Where a straight line says nearly all that can be said, what else the rows seem to say is mostly noise, and is held
    down; where ladders find much, they are left free. The first quarter of the epochs, in which the steps grow, goes
    nearly without decay, so that there is something to find.

    The weights of full ladders have `width` times that decay, at most 1.5 `most`. A step makes each of the many weights
    of a wide ladder about as much larger as the few of a narrow one, so its rungs move further.
    """

    linear_loss: float
    share: float = 1.0
    most: float = MOST_DECAY
    width: float = 1.0

    def __call__(self, done: float, loss: float) -> Decay:
        """The decay of the whole training, where a share of it is `done`."""
        decay = self.share
        if done >= FINDING_OUT:
            gain = 1 - loss / self.linear_loss if self.linear_loss > 0 else 0.0
            decay = 2 * self.share / gain if gain > 2 * self.share / self.most else self.most
        return Decay(min(self.width * decay, MOST_OF_MATRICES * self.most), decay)
