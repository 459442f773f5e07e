"""AdamW on one vector: torch's own numbers, clipping for each member, and parameters that get their memory back."""

import pytest
import torch

from cofrnet.core import backend
from cofrnet.nn import CoFrNet
from cofrnet.training.adamw import AdamW

BACKENDS = ["auto", "reference"]


def model_of(members=1):
    return CoFrNet(n_features=3, n_ladders=2, n_members=members, generator=torch.Generator().manual_seed(0))


def gradients_of(model, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]


@pytest.mark.parametrize("way", BACKENDS)
def test_steps_are_those_of_torch(way):
    ours, theirs = model_of(), model_of()
    free = [p for name, p in theirs.named_parameters() if name.endswith(("bias", "intercept"))]
    decayed = [p for name, p in theirs.named_parameters() if not name.endswith(("bias", "intercept"))]
    reference = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.2}, {"params": free, "weight_decay": 0.0}], lr=0.03
    )
    optimizer = AdamW(ours)
    for seed in range(5):
        for p, q, gradient in zip(ours.parameters(), theirs.parameters(), gradients_of(ours, seed), strict=True):
            p.grad.copy_(gradient)
            q.grad = gradient
        with backend(way):
            optimizer.step(0.03, shrink=0.03 * 0.2)
        reference.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("members", [1, 3])
def test_each_member_is_clipped_by_its_own_norm(way, members):
    model = model_of(members)
    optimizer = AdamW(model, members)
    scales = torch.tensor([3.0, 1e-3, 2.0])[:members]
    before = []
    for p, gradient in zip(model.parameters(), gradients_of(model, 1), strict=True):
        by_member = gradient.reshape(members, -1) * scales[:, None]
        p.grad.copy_(by_member.view(p.shape))
        before.append(by_member)
    norms = torch.cat(before, dim=1).norm(dim=1)
    with backend(way):
        optimizer.clip(1.0)
    after = torch.cat([p.grad.reshape(members, -1) for p in model.parameters()], dim=1)
    expected = torch.cat(before, dim=1) * (1 / norms).clamp_max(1.0)[:, None]
    torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-7)
    assert (norms > 1).any()
    assert members == 1 or (norms < 1).any()


def test_parameters_are_views_until_released():
    model = model_of()
    optimizer = AdamW(model)
    optimizer.values.zero_()
    assert all((p == 0).all() for p in model.parameters())
    optimizer.release()
    optimizer.values.fill_(1.0)
    assert all((p == 0).all() and p.grad is None for p in model.parameters())
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == len(list(model.parameters()))


def test_parameters_of_two_dtypes_are_refused():
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()])
    with pytest.raises(ValueError, match="float32 on cpu"):
        AdamW(model)
