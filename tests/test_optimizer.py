"""Steps on one vector: torch's own AdamW but for matrices, clipping for each member, memory that is given back."""

import pytest
import torch

from cofrnet.core import backend
from cofrnet.nn import CoFrNet
from cofrnet.training.optimizer import MOST_ROWS, Optimizer, polar

BACKENDS = ["auto", "reference"]


def model_of(members=1, **fields):
    fields = {"n_features": 3, "n_ladders": 2} | fields
    return CoFrNet(**fields, n_members=members, generator=torch.Generator().manual_seed(0))


def gradients_of(model, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]


def optimizer_of(model, way, members=1):
    """An optimizer, which takes its way when it is made."""
    with backend(way):
        optimizer = Optimizer(model, members)
    assert (optimizer.kernels is None) == (way == "reference")
    return optimizer


def random_steps(model, way, members=1, steps=5):
    """Steps of the optimizer down random gradients; yields those before each."""
    optimizer = optimizer_of(model, way, members)
    for seed in range(steps):
        gradients = gradients_of(model, seed)
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad.copy_(gradient)
        yield gradients
        optimizer.step(0.03, shrink=0.03 * 0.2)


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("variant", ["D", "S"])
def test_steps_are_those_of_torch_but_for_matrices(way, variant):
    ours, theirs = model_of(variant=variant), model_of(variant=variant)
    free = [p for name, p in theirs.named_parameters() if name.endswith(("bias", "intercept"))]
    decayed = [p for name, p in theirs.named_parameters() if not name.endswith(("bias", "intercept"))]
    reference = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.2}, {"params": free, "weight_decay": 0.0}], lr=0.03
    )
    for gradients in random_steps(ours, way):
        for q, gradient in zip(theirs.parameters(), gradients, strict=True):
            q.grad = gradient
        reference.step()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if name != "full.weight":
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert (variant == "D") == (not ours.matrices())


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize(
    ("members", "fields"),
    [
        (1, {}),
        (3, {"n_ladders": 5}),
        (2, {"variant": "DL", "n_ladders": 4}),
        (1, {"variant": "F", "n_ladders": MOST_ROWS + 9, "n_features": 20}),
    ],
)
def test_matrices_go_as_far_as_adam_in_directions_of_their_own(way, members, fields):
    """Every rung of every member on its own, by the formula of the class; few rows of a large matrix at a time."""
    model = model_of(members, **fields)
    ((_, (rows, columns)),) = model.matrices()
    weight = model.full.weight.detach().clone().view(-1, rows, columns)
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    at = [name for name, _ in model.named_parameters()].index("full.weight")
    for t, gradients in enumerate(random_steps(model, way, members), 1):
        g = gradients[at].view(-1, rows, columns)
        mean, square = 0.8 * mean + 0.2 * g, 0.999 * square + 0.001 * g**2
        adam = mean / (1 - 0.8**t) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
        weight *= 1 - 0.03 * 0.2
        for w, a, u in zip(weight, adam, 0.8 * mean + 0.2 * g, strict=True):
            for own in (slice(0, MOST_ROWS), slice(MOST_ROWS, None)):
                if len(w[own]):
                    v = u[own] / u[own].norm()
                    direction = 4 * polar(v[None])[0] / min(v.shape) ** 0.5 + v
                    w[own] -= 0.03 * 0.2 * a[own].norm() * direction
    torch.testing.assert_close(model.full.weight.detach().view(weight.shape), weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 6, 30), (2, 30, 6)])
def test_polar_keeps_directions_and_makes_them_as_long(shape):
    u = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u /= torch.linalg.vector_norm(u, dim=(1, 2), keepdim=True)
    found = polar(u)
    left, lengths, right = torch.linalg.svd(u, full_matrices=False)
    along = left.transpose(1, 2) @ found @ right.transpose(1, 2)
    assert lengths.max() / lengths.min() > 2
    torch.testing.assert_close(along, torch.diag_embed(torch.ones_like(lengths)), rtol=0, atol=0.35)
    off = along - torch.diag_embed(along.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(off, torch.zeros_like(off), rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", BACKENDS)
def test_no_gradient_leaves_matrices_but_for_the_decay(way):
    model = model_of()
    before = model.full.weight.detach().clone()
    curves = model.curves.weight.detach().clone()
    optimizer = optimizer_of(model, way)
    optimizer.step(0.03, shrink=0.01)
    torch.testing.assert_close(model.full.weight.detach(), before * 0.99)
    optimizer.step(0.03, shrink=0.01, of_matrices=0.2)
    torch.testing.assert_close(model.full.weight.detach(), before * 0.99 * 0.8)
    torch.testing.assert_close(model.curves.weight.detach(), curves * 0.99**2)


@pytest.mark.parametrize("size", [1e-12, 1e-17, 1e-20, 1e-25, 1e-38, 1e-44])
def test_gradients_too_small_to_be_squared_do_no_harm(size):
    """As those of the lowest rungs of deep ladders; a norm that comes out as 0 must not blow them up."""
    model = model_of(n_ladders=MOST_ROWS, n_features=50)
    before = model.full.weight.detach().clone()
    optimizer = Optimizer(model)
    for seed in range(3):
        for p, gradient in zip(model.parameters(), gradients_of(model, seed), strict=True):
            p.grad.copy_(gradient * size)
        optimizer.step(0.03, shrink=0.0)
    assert torch.isfinite(model.full.weight).all()
    assert (model.full.weight - before).abs().max() < 0.1


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("members", [1, 3])
def test_each_member_is_clipped_by_its_own_norm(way, members):
    model = model_of(members)
    optimizer = optimizer_of(model, way, members)
    scales = torch.tensor([3.0, 1e-3, 2.0])[:members]
    before = []
    for p, gradient in zip(model.parameters(), gradients_of(model, 1), strict=True):
        by_member = gradient.reshape(members, -1) * scales[:, None]
        p.grad.copy_(by_member.view(p.shape))
        before.append(by_member)
    norms = torch.cat(before, dim=1).norm(dim=1)
    optimizer.clip(1.0)
    after = torch.cat([p.grad.reshape(members, -1) for p in model.parameters()], dim=1)
    expected = torch.cat(before, dim=1) * (1 / norms).clamp_max(1.0)[:, None]
    torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-7)
    assert (norms > 1).any()
    assert members == 1 or (norms < 1).any()


def test_parameters_are_views_until_released():
    model = model_of()
    optimizer = Optimizer(model)
    optimizer.values.zero_()
    assert all((p == 0).all() for p in model.parameters())
    optimizer.release()
    optimizer.values.fill_(1.0)
    assert all((p == 0).all() and p.grad is None for p in model.parameters())
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == len(list(model.parameters()))


def test_parameters_of_two_dtypes_are_refused():
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()])
    with pytest.raises(ValueError, match="float32 on cpu"):
        Optimizer(model)
