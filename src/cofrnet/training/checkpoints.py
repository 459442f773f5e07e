"""Checkpoints: everything the epoch loop needs to go on as if it had never stopped, in one safetensors file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cofrnet.files import digest_of, write_atomically
from cofrnet.training.members import MemberSteps
from cofrnet.training.optimizer import WAY_OF_STEPS
from cofrnet.training.steps import Steps

__all__ = ["Checkpoint", "fingerprint", "numbers_of"]

BROKEN = (SafetensorError, KeyError, TypeError, ValueError)  # what files raise that no fit wrote


def numbers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a model has learned: its parameters, and running means and the like."""
    yield from model.named_parameters()
    for name, value in model.named_buffers():
        if value.is_floating_point():
            yield name, value


def fingerprint(parts: Sequence[Any], *tensors: Tensor | None) -> str:
    """A hash of settings (anything with a stable repr), tensors and the way steps are taken, to know a fit by."""
    digest = hashlib.sha256(json.dumps([WAY_OF_STEPS, *parts], default=repr).encode())
    for tensor in tensors:
        if tensor is not None:
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return digest_of({name: tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()})


@dataclass(frozen=True)
class Checkpoint:
    """A file that is written every `every` epochs and resumed from where it exists.

    `fingerprint` names the fit it belongs to (data, spec, options): a file of another fit is refused, not overwritten.
    `seed` is that of the fit, for one that did not give it to go on by. The file is replaced atomically; a resumed fit
    ends with the same weights, to the bit, as one that was not stopped.
    """

    path: Path
    every: int = 1
    fingerprint: str = ""
    seed: int = 0

    @staticmethod
    def seed_in(path: Path) -> int | None:
        """The seed of the fit that wrote a file; None where there is none that a fit wrote."""
        try:
            with safe_open(path, framework="pt") as file:
                return int(json.loads((file.metadata() or {})["cofrnet"])["seed"])
        except (OSError, *BROKEN):
            return None

    def is_due(self, epoch: int) -> bool:
        """Whether to write after this epoch."""
        return (epoch + 1) % self.every == 0

    def save(
        self,
        model: nn.Module,
        steps: Steps | MemberSteps,
        generator: torch.Generator,
        best: Any,
        next_epoch: int,
        since_best: int,
        history: dict[str, list[float]],
    ) -> None:
        """Write the state before `next_epoch`."""
        tensors = {"generator": generator.get_state(), "best_loss": best.loss}
        tensors |= {f"optimizer/{name}": value for name, value in steps.state.items()}
        for name, parameter in numbers_of(model):
            tensors[f"model/{name}"] = parameter
            tensors[f"best/{name}"] = best.state[name]
        tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        about = {
            "fingerprint": self.fingerprint,
            "digest": _digest(tensors),
            "seed": self.seed,
            "next_epoch": next_epoch,
            "since_best": since_best,
            "best_epoch": best.epoch,
            "best_mean": best.mean,
            "history": history,
        }
        write_atomically(self.path, save(tensors, {"cofrnet": json.dumps(about)}))

    def load(
        self, model: nn.Module, steps: Steps | MemberSteps, generator: torch.Generator, best: Any
    ) -> tuple[int, int, dict[str, list[float]]] | None:
        """Put the saved state into the four, and return (next epoch, epochs since the best, history).

        None where there is no file yet.
        """
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                about = json.loads((file.metadata() or {})["cofrnet"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            written_by, digest = about["fingerprint"], about["digest"]
        except BROKEN as error:
            raise ValueError(
                f"a checkpoint must be a file that a fit wrote; got {self.path} ({error}). Delete it or name another."
            ) from error
        if digest != _digest(tensors):
            raise ValueError(
                f"a checkpoint must be as it was written; some numbers of {self.path} have changed since. Delete it to "
                "start anew."
            )
        if written_by != self.fingerprint:
            raise ValueError(
                f"a checkpoint must belong to the same data and settings; got {self.path}, written by another fit. "
                "Delete it to start anew, or name another file."
            )
        with torch.no_grad():
            for name, parameter in numbers_of(model):
                parameter.copy_(tensors[f"model/{name}"])
                best.state[name].copy_(tensors[f"best/{name}"])
        steps.restore({name: tensors[f"optimizer/{name}"] for name in steps.state})
        generator.set_state(tensors["generator"])
        best.loss, best.epoch = tensors["best_loss"].to(best.loss.device), about["best_epoch"]
        best.mean = about["best_mean"]
        return about["next_epoch"], about["since_best"], about["history"]
