import torch
from torch.nn.functional import cross_entropy, mse_loss

from cofrnet.datasets import waveform
from cofrnet.nn import CoFrNet
from cofrnet.training import train


def test_loss_falls_and_the_seed_decides():
    X, y = waveform(600, seed=0)
    x, y = torch.as_tensor(X, dtype=torch.float32) / 3, torch.as_tensor(y)

    def fitted(seed):
        generator = torch.Generator().manual_seed(seed)
        model = CoFrNet(n_features=40, n_outputs=3, n_ladders=4, generator=generator)
        epochs = []
        history = train(model, cross_entropy, x, y, epochs=8, generator=generator, on_epoch=lambda *e: epochs.append(e))
        assert epochs == list(enumerate(history))
        assert not model.training
        return history, model.state_dict()

    (history, one), (_, two), (_, other) = fitted(0), fitted(0), fitted(1)
    assert history[-1] < 0.6 * history[0]
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_regression_on_a_rational_function():
    x = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    y = (x[:, :1] / (1 + x[:, 1:] ** 2) - 0.1) / 0.5
    generator = torch.Generator().manual_seed(0)
    model = CoFrNet(n_features=2, generator=generator)
    train(model, mse_loss, x, y, epochs=60, batch_size=64, weight_decay=0.0, generator=generator)
    with torch.no_grad():
        assert mse_loss(model(x), y) < 0.01 * y.var()
