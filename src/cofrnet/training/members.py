"""Steps of the members of a model, each by itself in compiled code, on as many threads as torch may use.

Members have nothing in common but the batches, so they wait for each other once an epoch, and not at every step. The
numbers are the same for any number of threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cofrnet.compiled.blas import one_thread_of_blas
from cofrnet.compiled.team import Team
from cofrnet.nn import CoFrNet, fused
from cofrnet.training.batches import Rows, Source
from cofrnet.training.losses import Loss, compiled_name, evaluate
from cofrnet.training.optimizer import Optimizer
from cofrnet.training.steps import Plan
from cofrnet.training.threads import EACH
from cofrnet.training.together import crew

__all__ = ["MemberSteps"]

T = TypeVar("T")


class MemberSteps:
    """Steps of the members of a model, each by itself; used as `Steps` are.

    They are taken by copies of the members. These have the numbers of the model before an epoch; it has theirs after.
    """

    def __init__(self, model: CoFrNet, loss: Loss, data: Rows, clip_norm: float | None = None) -> None:
        self.model = model
        name, count = compiled_name(loss), model.spec.n_members
        assert name is not None
        targets: Tensor = loss.targets(data.y, model.spec.n_outputs, data.x.dtype)  # type: ignore[attr-defined]
        rows = [t.contiguous() for t in (data.x, targets)]
        weight = data.x.new_empty(0, count) if data.weight is None else data.weight.reshape(len(data), -1).to(data.x)
        weights = weight.expand(-1, count).unbind(1)
        self.each = [_Member(model.member(i), name, rows, weights[i], clip_norm) for i in range(count)]
        self.crew = crew()
        self.threads = min(len(self.each), torch.get_num_threads())
        self._team = Team()
        self._stop = np.zeros(1, dtype=np.int64)

    @staticmethod
    def cover(model: Any, loss: Loss, data: Source, batch_size: int) -> bool:
        """Whether steps of a model can be taken so, and pay.

        They can where scores and the loss have closed forms and nothing is drawn at random; where one step keeps
        several threads busy, those of torch are better.
        """
        if not isinstance(model, CoFrNet) or not isinstance(data, Rows) or crew().size > 1:
            return False
        spec = model.spec
        learned = all(parameter.requires_grad for parameter in model.parameters())
        if spec.dropout > 0 or model.members_share or compiled_name(loss) is None or not learned:
            return False
        if batch_size * spec.n_parameters >= 2 * EACH * spec.n_members or data.x.dtype != torch.float32:
            return False
        return fused.covered(model, data.x[:1]) is not None

    @property
    def state(self) -> dict[str, Tensor]:
        """What steps to come depend on, besides the model: the same as of `Steps` of all members."""
        states = [member.optimizer.state for member in self.each]
        return {name: self._joined([s[name] for s in states]) if v.ndim else v for name, v in states[0].items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a `state`; the numbers of the model are as they were with it."""
        divided = {name: self._divided(v) if v.ndim else [v] * len(self.each) for name, v in state.items()}
        for i, member in enumerate(self.each):
            member.optimizer.restore({name: vectors[i] for name, vectors in divided.items()})

    def _sizes(self) -> list[int]:
        return [p.numel() for p in self.each[0].optimizer.parameters]

    def _joined(self, vectors: Sequence[Tensor]) -> Tensor:
        """The vector of all parameters, parameter by parameter with all members each, of those of the members."""
        by_member = [vector.split(self._sizes()) for vector in vectors]
        return torch.cat([part for of_all in zip(*by_member, strict=True) for part in of_all])

    def _divided(self, vector: Tensor) -> list[Tensor]:
        """The vectors of the members that `_joined` makes such a vector of."""
        members = len(self.each)
        parts = vector.split([size for size in self._sizes() for _ in range(members)])
        return [torch.cat(parts[i::members]) for i in range(members)]

    def _copy(self, from_model: bool) -> None:
        """Give the members the numbers of the model, or the model those of the members."""
        whole, several = self.model.state_dict(), len(self.each) > 1
        for i, member in enumerate(self.each):
            for name, own in member.model.state_dict().items():
                there = whole[name][i] if several else whole[name]
                into, source = (own, there) if from_model else (there, own)
                into.copy_(source)

    def over(self, data: Source, batch_size: int, generator: torch.Generator, plan: Plan) -> Tensor:
        """Take a step of each member for each batch; returns the mean of the losses before it, of each member."""
        assert isinstance(data, Rows)
        self._copy(from_model=True)  # a callback may have changed it
        order, ends = data.order(generator).numpy(), np.array(data.ends(batch_size))
        steps = np.array([plan(number) for number in range(len(ends) - 1)])
        losses = np.zeros((len(self.each), len(steps)))
        parts = self._parts()

        def descend(i: int, number: int) -> None:
            lo, hi = len(steps) * number // parts, len(steps) * (number + 1) // parts
            self.each[i].descend(order, ends[lo : hi + 1], steps[lo:hi], losses[i, lo:hi], self._stop)

        with one_thread_of_blas():
            self._of_each(descend, parts)
        self._copy(from_model=False)
        return torch.from_numpy(losses.mean(1))

    def _parts(self) -> int:
        """How many parts the steps of an epoch are cut into, so that all threads end at about the same time."""
        members = len(self.each)
        return 1 if members % self.threads == 0 else 2 * self.threads // math.gcd(members, self.threads)

    def evaluate(self, data: Rows, functions: Sequence[Loss]) -> list[Tensor]:
        """Weighted means over the rows of functions of scores and targets, each (members,)."""

        def of_member(i: int, _: int) -> list[Tensor]:
            own, nothing = data.of_member(i), torch.tensor([math.nan])
            return evaluate(self.each[i].model, own, functions) if len(own) else [nothing] * len(functions)

        found = [parts[0] for parts in self._of_each(of_member)]
        return [torch.cat(values) for values in zip(*found, strict=True)]

    def _of_each(self, function: Callable[[int, int], T], parts: int = 1) -> list[list[T]]:
        """What a function gives for every member and each of its parts, which are taken in turn.

        Threads take members by turns, a part at a time. Whatever ends the wait for them, such as Ctrl-C or an error of
        one, ends the work for good.
        """
        found: list[list[T]] = [[] for _ in self.each]
        waiting = deque(range(len(self.each)))

        def work() -> None:
            while not self._stop[0]:
                try:
                    i = waiting.popleft()
                except IndexError:  # other threads are at what is left
                    return
                found[i].append(function(i, len(found[i])))
                if len(found[i]) < parts:
                    waiting.append(i)

        self._team.call(work, self.threads, stop=lambda: self._stop.fill(1), watching=True)
        return found

    def release(self) -> None:
        """End the threads."""
        self._team.release()


class _Member:
    """One member, its optimizer, and all that its steps read and write, as arrays."""

    def __init__(
        self, model: CoFrNet, loss: str, rows: Sequence[Tensor], weight: Tensor, clip_norm: float | None
    ) -> None:
        covered = fused.covered(model, rows[0][:1])
        assert covered is not None
        parameters, kernels = covered
        self.model, self.optimizer = model, Optimizer(model)
        self.kernels: Any = kernels.descent
        full = model.full
        self.arrays = [
            fused.compiled_numbers(model, tensors, kernels)
            for tensors in ([p.detach() for p in parameters], [p.grad for p in parameters])
        ]
        own = self.optimizer
        self.vectors = self.kernels.Vectors(*(t.numpy() for t in (own.values, own.gradient, own.mean, own.square)))
        shape = (0, 1, 1) if full is None else (len(full.weight), full.n_ladders, full.n_features)
        self.layout = own.in_matrices, own.decayed, shape
        self.table = self.kernels.Table(*(t.contiguous().numpy() for t in (*rows, weight)))
        self.kind = self.kernels.LOSSES[loss], fused.compiled_kind(model, kernels, self.vectors.values)
        self.rule = self.kernels.Rule(*own.rule, float(clip_norm or 0.0))

    def descend(self, order: Any, ends: Any, plan: Any, losses: Any, stop: Any) -> None:
        """Take a step for each batch, whose losses are written down."""
        own = self.optimizer
        arguments = (*self.arrays, self.vectors, *self.layout, self.table, order, ends, plan, own.count, *self.kind)
        self.kernels.descend(*arguments, self.rule, losses, stop)
        own.count += len(plan)
