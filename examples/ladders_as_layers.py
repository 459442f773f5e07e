"""Ladders as layers of your own torch model.

The model below is an ordinary ``torch.nn.Module``: two banks of ladders with a linear layer between them, and a CoFrNet
as its head. It learns a function of five features in a few seconds; then the closed form of the gradient is read off.

Run it with: python examples/ladders_as_layers.py
"""

import torch
from torch import Tensor, nn

from cofrnet import core
from cofrnet.nn import CoFrNet, DiagonalLadders, FullLadders


class MyModel(nn.Module):
    """Curves of each feature, mixed by a linear layer, read by full ladders, combined by a CoFrNet."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.curves = DiagonalLadders(n_features, depth=3, ladders_per_feature=4)
        self.mix = nn.Linear(self.curves.n_ladders, 8)
        self.ladders = FullLadders(8, n_ladders=8, depth=2)
        self.head = CoFrNet(n_features=8, variant="D", depth=1)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x (..., n_features); returns (...)."""
        return self.head(self.ladders(self.mix(self.curves(x)))).squeeze(-1)


def friedman(x: Tensor) -> Tensor:
    """Friedman's first function, of five features in [0, 1]."""
    return 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def main(steps: int = 600) -> float:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    x, x_test = torch.rand(2000, 5, generator=generator), torch.rand(1000, 5, generator=generator)
    y, y_test = friedman(x), friedman(x_test)
    model = MyModel(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(2 * x - 1), (y - y.mean()) / y.std())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        prediction = model(2 * x_test - 1) * y.std() + y.mean()
    r2 = 1 - float(((y_test - prediction) ** 2).mean() / y_test.var(correction=0))
    print(f"R2 on fresh rows: {r2:.3f}")

    # Every bank gives its partial denominators, and with them the closed form df/da_k of each ladder.
    a = model.curves.partial_denominators(2 * x_test[:1] - 1)  # (d+1, 1, L)
    slopes = core.sensitivities(a, model.curves.pole, model.curves.epsilon)  # (d+1, 1, L)
    weight, _ = model.curves.rungs()  # (d+1, L)
    print("slope of the first curve of each feature:", (slopes[:, 0] * weight).sum(0)[::4].tolist())
    return r2


if __name__ == "__main__":
    main()
