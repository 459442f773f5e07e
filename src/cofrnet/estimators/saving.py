"""Fitted estimators in files: `save` and `load`, without pickle.

What an estimator of a kind puts into its file beside this is said where that kind is: `saving_tables`,
`saving_texts`, `saving_images`.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

import cofrnet
from cofrnet.errors import ModelFileError
from cofrnet.estimators.contents import fits, or_none
from cofrnet.files import Fields, read_tensors, tensors_to_bytes, write_atomically

__all__ = ["Saving", "dtype_of", "filled", "load"]


class Saving:
    """What makes a fitted estimator a file."""

    model_: Any
    history_: dict[str, list[float]]
    target_name_: str | None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted estimator to one file, whole or not at all, and return its path; `cofrnet.load` reads it.

        The file is safetensors with JSON: numbers and text, no code. It holds statistics of the training rows, and none
        of the rows. Callbacks, losses and tokenizers of one's own, which are code, are not in it.
        """
        check_is_fitted(self)
        tensors = {f"model/{name}": value for name, value in self.model_.state_dict().items()}
        return write_atomically(path, tensors_to_bytes(tensors | self._more_tensors(), self._about()))

    def _more_tensors(self) -> dict[str, Tensor]:
        """Tensors of the file beside those of the model."""
        return {}

    def _about(self) -> dict[str, Any]:
        given: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        history: dict[str, list[float]] = getattr(self, "history_", {})  # none after partial_fit
        return {
            "cofrnet": cofrnet.__version__,
            "estimator": type(self).__name__,
            "parameters": {k: kept for k, v in given.items() if (kept := _plain(v)) is not _CODE},
            "spec": self.model_.spec.to_dict(),
            "history": {name: [or_none(v) for v in values] for name, values in history.items()},
            "best_epoch": int(getattr(self, "best_epoch_", -1)),
            "target": self._target_fields() | {"name": self.target_name_},
        }

    def _target_fields(self) -> dict[str, Any]:
        """What the scores stand for, as plain values; `_restore_target` takes them back."""
        raise NotImplementedError

    def _restore_target(self, fields: Fields) -> int:
        """Take back what the scores stand for; returns how many outputs the model must have."""
        raise NotImplementedError

    def _restore_model(self, tensors: dict[str, Tensor], about: Fields, outputs: int) -> None:
        """Take back the model, of so many outputs, and all that is not in every estimator."""
        raise NotImplementedError

    def _restore(self, tensors: dict[str, Tensor], about: Fields) -> Self:
        outputs = self._restore_target(about.object("target"))
        named = about.object("target").any("name")
        fits(named is None or isinstance(named, str), "name of the target", "text")
        self.target_name_ = named
        self._restore_model(tensors, about, outputs)
        history = about.object("history").values
        self.history_ = {
            str(k): [math.nan if v is None else float(v) for v in vs]
            for k, vs in history.items()
            if isinstance(vs, list)
        }
        self.best_epoch_ = about.integer("best_epoch", -1)
        self.n_iter_ = len(self.history_.get("loss", []))
        return self


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted estimator that `save` wrote to the file.

    Everything in it is checked before it is used; whatever is wrong is a `ModelFileError` that says what.
    """
    from cofrnet import estimators

    arrays, values = read_tensors(path)
    about = Fields(values, str(path))
    kinds = [name for name in estimators.__all__ if name != "load"]
    named = about.text("estimator")
    if named not in kinds:
        raise ModelFileError(f"{path} must hold one of {kinds}; got {named!r:.60}.")
    kind = getattr(estimators, named)
    given = about.object("parameters").values
    unknown = set(given) - set(kind().get_params(deep=False))
    if unknown:
        raise ModelFileError(f"{path} must have known parameters; got {sorted(map(str, unknown))[:3]}.")
    try:
        estimator = kind(**{name: _unplain(value) for name, value in given.items()})
        return estimator._restore({name: torch.from_numpy(array) for name, array in arrays.items()}, about)
    except ModelFileError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} must describe a model; its parts do not fit together ({error}). Save the model again."
        ) from error


def filled(model: Any, tensors: dict[str, Tensor]) -> Any:
    """The model with the numbers of the file, in evaluation mode."""
    wanted = model.state_dict()
    fits(
        {f"model/{name}" for name in wanted} == {n for n in tensors if n.startswith("model/")}, "tensors", "the model's"
    )
    for name, value in wanted.items():
        found = tensors[f"model/{name}"]
        fits(found.shape == value.shape, f"tensor {name!r}", f"of shape {tuple(value.shape)}")
    model.load_state_dict({name: tensors[f"model/{name}"] for name in wanted})
    return model.eval()


def dtype_of(tensors: dict[str, Tensor]) -> torch.dtype:
    """The one dtype that the model's numbers in the file have."""
    kinds = {t.dtype for name, t in tensors.items() if name.startswith("model/")}
    fits(len(kinds) == 1, "tensors", "of one dtype")
    return kinds.pop()


# ---------------------------------------------------------------------------------------------- parameters


_CODE = object()  # stands for what a file cannot hold


def _plain(value: Any) -> Any:
    """A parameter of the constructor as JSON: lists, tuples and dicts are marked, so that all keep their types."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _CODE
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "items"):  # a dict, or a series
        value = dict(value.items())
    elif hasattr(value, "tolist"):
        value = value.tolist()
    elif isinstance(value, set | frozenset | range):
        value = list(value)
    if isinstance(value, dict):
        pairs = [[_plain(k), _plain(v)] for k, v in value.items()]
        return _CODE if any(_CODE in pair for pair in pairs) else {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [_plain(v) for v in value]
        return _CODE if _CODE in items else {"list" if isinstance(value, list) else "tuple": items}
    return _CODE


def _unplain(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("dict"), list):
        return {_unplain(k): _unplain(v) for k, v in value["dict"]}
    for name, kind in (("list", list), ("tuple", tuple)):
        if isinstance(value, dict) and isinstance(value.get(name), list):
            return kind(_unplain(v) for v in value[name])
    fits(value is None or isinstance(value, bool | int | float | str), "parameters", "plain values")
    return value
