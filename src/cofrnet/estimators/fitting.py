"""What the estimators share of fitting: rows held out, the epoch loop with all that the parameters ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from cofrnet.compiled.blas import one_thread_of_blas
from cofrnet.estimators.checks import require
from cofrnet.training import (
    Callback,
    Checkpoint,
    ImageFiles,
    Images,
    LoopOptions,
    Loss,
    ProgressBar,
    Rows,
    Trained,
    fingerprint,
    train,
)
from cofrnet.training.threads import look_after_forks

__all__ = ["Fitting", "chosen_rows", "device_named", "require_both", "unharmed"]

FEWEST_VALIDATION_ROWS = 20  # below this a validation loss says nothing: all rows are trained on
FEWEST_IN_TURN = 40  # of all members together, each of which has only a few of them


@contextmanager
def unharmed(estimator: Any, goes_on: bool) -> Iterator[None]:
    """What an estimator has learned before stays as it is, if what follows fails; gradients are taken in any case.

    Where training `goes_on` from the weights there are, they are put back. The caller may be within `torch.no_grad` or
    `torch.inference_mode`, which hold for what it does with torch itself.
    """
    look_after_forks()
    before = dict(vars(estimator))
    model = before.get("model_") if goes_on else None
    weights = None if model is None else {name: value.clone() for name, value in model.state_dict().items()}
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    except BaseException:  # Ctrl-C among them, where the epoch loop does not look after it
        vars(estimator).clear()
        vars(estimator).update(before)
        if model is not None:
            model.load_state_dict(weights)
        raise
    finally:
        one_thread_of_blas().leave()


class Fitting:
    """Fitting a module to rows by the epoch loop."""

    early_stopping: bool
    validation_fraction: float
    checkpoint: str | Path | None
    checkpoint_every: int
    callbacks: Iterable[Callback] | None
    device: str
    random_state: Any
    warm_start: bool
    verbose: int

    _seed: int
    history_: dict[str, list[float]]
    n_iter_: int
    best_epoch_: int

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        """The loss, and metrics for the history."""
        raise NotImplementedError

    def _draws(self) -> np.random.RandomState:
        """What a fit draws from; without `random_state`, the same as the fit that wrote the checkpoint there is."""
        given = self.random_state
        if given is None and self.checkpoint is not None:
            known = Checkpoint.seed_in(Path(self.checkpoint))
            given = int(check_random_state(None).randint(2**31 - 1)) if known is None else known
        self._seed = int(given) if isinstance(given, Integral) else 0
        return check_random_state(given)

    def _split(
        self, y: NDArray[Any], rng: np.random.RandomState, given: bool, weight: NDArray[Any] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Positions of the rows to train on, and of those held out; all in order, and None, where none are."""
        everything = np.arange(len(y))
        if given or not self.early_stopping or len(y) * self.validation_fraction < FEWEST_VALIDATION_ROWS:
            return everything, None
        stratify = None
        if isinstance(self, ClassifierMixin):
            counts = np.bincount(y.astype(np.int64))
            stratify = y if counts.min() * self.validation_fraction >= 1 else None
        kept, held = train_test_split(
            everything, test_size=self.validation_fraction, random_state=rng, stratify=stratify
        )
        if isinstance(self, ClassifierMixin):  # every class must be there to be learnt
            unseen = ~np.isin(y[held], y[kept])
            kept, held = np.concatenate([kept, held[unseen]]), held[~unseen]
        counted = [len(own) > 0 if weight is None else bool(weight[own].any()) for own in (kept, held)]
        return (kept, held) if all(counted) else (everything, None)  # rows that count are too few to hold any out

    def _held_in_turn(
        self, y: NDArray[Any], members: int, rng: np.random.RandomState, weight: NDArray[Any] | None = None
    ) -> Tensor | None:
        """Which rows each of several members holds out, (n, members); None where they are too few, or none are wanted.

        The rows stand around a clock, those of every class evenly and in random order, and each member holds out those
        that it finds in its own share of the round, which begins where that of the member before ends. Classes too rare
        for every share to have a row are held out by none: every member must learn them.
        """
        n, share = len(y), self.validation_fraction
        if members == 1 or not self.early_stopping or n * min(members * share, 1.0) < FEWEST_IN_TURN:
            return None
        codes = y.astype(np.int64) if isinstance(self, ClassifierMixin) else np.zeros(n, dtype=np.int64)
        clock = np.empty(n)
        for code in np.unique(codes):
            own = rng.permutation(np.flatnonzero(codes == code))
            clock[own] = (np.arange(len(own)) + 0.5) / len(own) if len(own) * share >= 1 else np.nan
        held = (clock[:, None] - share * np.arange(members)) % 1.0 < share
        counts = np.ones(n, dtype=np.float32) if weight is None else (weight / weight.mean()).astype(np.float32)
        enough = (counts @ held > 0).all() and (counts @ ~held > 0).all()
        return torch.from_numpy(held) if enough else None

    def _run(
        self,
        model: Any,
        data: Rows | Images | ImageFiles,
        validation: Rows | None,
        generator: torch.Generator,
        options: LoopOptions,
        project: Callable[[], None] | None = None,
    ) -> Trained:
        """Train one module with everything the parameters ask for: device, progress bar, checkpoints, history."""
        device = device_named(self.device) if project is None else torch.device("cpu")
        loss, metrics = self._losses()
        checkpoint = None
        if self.checkpoint is not None:
            tensors = [t for rows in (data, validation) if rows is not None for t in rows.tensors]
            if self.warm_start and hasattr(self, "history_"):  # a fit that goes on from another is not that one
                tensors += [parameter.detach() for parameter in model.parameters()]
            more = [getattr(data, "settings", None), getattr(model, "precision", None)]
            named = re.sub(" at 0x[0-9a-f]+", "", repr(loss))  # a function is the same in another process
            parts = [model.spec.to_dict(), repr(options), named, generator.initial_seed(), *more]
            whose = fingerprint(parts, *tensors)
            checkpoint = Checkpoint(Path(self.checkpoint), self.checkpoint_every, whose, self._seed)
        if project is not None:
            project()
        with ExitStack() as stack:
            callbacks = list(self.callbacks or ())
            if self.verbose:
                callbacks.append(stack.enter_context(ProgressBar(type(self).__name__)))
            try:
                return train(
                    model.to(device),
                    loss,
                    data.to(device),
                    validation=None if validation is None else validation.to(device),
                    options=options,
                    generator=generator,
                    metrics=metrics,
                    project=project,
                    callbacks=callbacks,
                    checkpoint=checkpoint,
                )
            finally:
                model.to("cpu")

    def _record(self, trained: Trained) -> None:
        self.history_ = trained.history
        self.n_iter_ = len(trained.history.get("loss", []))
        self.best_epoch_ = trained.best_epoch


def chosen_rows(x: Any, y: NDArray[Any], weight: NDArray[Any] | None, rows: NDArray[np.int64]) -> Rows:
    """Some rows of x, a tensor or a bag, as `_split` gives them; their weights have a mean of 1."""
    scaled = None
    if weight is not None and weight[rows].any():
        scaled = torch.from_numpy((weight[rows] / weight[rows].mean()).astype(np.float32))
    own = x if len(rows) == len(x) else x[torch.from_numpy(rows)]
    return Rows(own, torch.from_numpy(np.asarray(y)[rows]), scaled)


def require_both(X_val: Any, y_val: Any) -> None:
    """Validation rows must have targets, and targets rows."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val must be given together; got one of them. Pass both, or neither.")


def device_named(name: str) -> torch.device:
    """The device of a name; "auto" is the best there is."""
    name = str(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    named = there.get(kind, False) and (kind == name or name.removeprefix(f"{kind}:").isdigit())
    require(named, "device", name, f"one of auto, {', '.join(k for k, v in there.items() if v)} here")
    return torch.device(name)
