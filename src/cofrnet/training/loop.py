"""The epoch loop: mini-batches, AdamW with a one-cycle learning rate, and clipped gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["train"]


def train(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    epochs: int = 30,
    batch_size: int = 256,
    learning_rate: float = 0.02,
    weight_decay: float = 1.0,
    clip_norm: float = 1.0,
    generator: torch.Generator | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Mean training loss of each epoch; the model is trained in place and left in evaluation mode.

    The learning rate climbs to `learning_rate` over the first third and falls to nearly 0 at the end (one cycle);
    weight decay is decoupled from the gradient (AdamW). `on_epoch` is called with the epoch and its loss.

    x : (n, p), y : (n,) or (n, q).
    """
    n = len(x)
    steps_per_epoch = -(-n // batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=epochs * steps_per_epoch)
    history = []
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(n, generator=generator).split(batch_size):
            optimizer.zero_grad()
            batch_loss = loss(model(x[rows]), y[rows])
            batch_loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            schedule.step()
            total += float(batch_loss.detach()) * len(rows)
        history.append(total / n)
        if on_epoch is not None:
            on_epoch(epoch, history[-1])
    model.eval()
    return history
