import copy
import json

import pytest
import torch

from cofrnet import core
from cofrnet.nn import CoFrNet, CoFrNetSpec, DiagonalLadders, FullLadders, SubsetLadders, fused
from tests.tolerances import PLACES, ROUNDING

VARIANTS = ("F", "D", "DL", "S")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def by_hand(bank, x, reads):
    """Values of a bank, ladder by ladder and rung by rung, each with its own features and depth."""
    weight, bias = bank.rungs()
    columns = []
    for ladder_index, features in enumerate(reads):
        depth = bank.depths[ladder_index]
        w = weight[: depth + 1, ladder_index].reshape(depth + 1, -1)[:, : len(features)]
        a = x[:, features] @ w.T + bias[: depth + 1, ladder_index]
        columns.append(core.ladder(a.T, bank.pole, bank.epsilon))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("uneven", [False, True])
def test_banks_compute_what_they_say(pole, uneven):
    x = torch.randn(17, 6, generator=seeded(), dtype=torch.float64)
    options = {"pole": pole, "dtype": torch.float64, "generator": seeded(1)}
    full = FullLadders(6, 4, [0, 3, 1, 2] if uneven else 3, **options)
    diagonal = DiagonalLadders(6, [0, 1, 2, 3] * 3 if uneven else 3, ladders_per_feature=2, **options)
    subsets = [(0, 3), (1,), (2, 4, 5), (5, 0)] if uneven else [(0, 3), (1, 2), (5, 4), (5, 0)]
    subset = SubsetLadders(6, subsets, [2, 0, 3, 1] if uneven else 3, **options)
    for bank, reads in [
        (full, [range(6)] * 4),
        (diagonal, [(j,) for j in range(6) for _ in range(2)]),
        (subset, subsets),
    ]:
        values = bank(x)
        assert values.shape == (17, bank.n_ladders)
        torch.testing.assert_close(values, by_hand(bank, x, [list(r) for r in reads]), rtol=1e-12, atol=1e-12)
        values.sum().backward()
        assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in bank.parameters())


def test_a_rung_that_is_not_there_is_no_parameter():
    assert FullLadders(5, 3, [0, 1, 4]).weight.numel() == (1 + 2 + 5) * 5
    assert SubsetLadders(5, [(0,), (1, 2, 3)], 2).weight.numel() == 3 * (1 + 3)
    weight, bias = FullLadders(5, 2, [0, 2]).rungs()
    assert weight.shape == (3, 2, 5)
    assert bias[1:, 0].tolist() == [float("inf")] * 2
    assert (weight[1:, 0] == 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"subsets": ((0, 1), (2, 3, 4), (1,))},
        {"pole": "clamp", "learn_epsilon": True},
        {"ladders_per_feature": 3, "linear": False, "depth": 1},
        {"n_outputs": 3, "n_ladders": 2, "depths": (5, 1)},
        {"n_members": 3, "subsets": ((0, 1),), "learn_epsilon": True},
        {"curved": (1, 4), "ladders_per_feature": 2, "n_members": 2},
        {"curved": ()},
    ],
)
def test_parameter_count_of_the_spec(variant, more):
    model = CoFrNet(n_features=5, variant=variant, **more)
    assert sum(p.numel() for p in model.parameters()) == model.spec.n_parameters


@pytest.mark.parametrize(("p", "L", "q", "depth"), [(2, 1, 1, 2), (10, 7, 3, 5), (40, 16, 3, 12)])
def test_parameter_count_of_the_supplement(p, L, q, depth):
    """p L (d-1) + L q, where the supplement's p counts the constant input and its d is our depth plus two."""
    spec = CoFrNetSpec(n_features=p, n_outputs=q, variant="F", n_ladders=L, depth=depth, linear=False)
    p_with_constant, d = p + 1, depth + 2
    assert spec.n_parameters == p_with_constant * L * (d - 1) + L * q


def test_ladders_of_each_variant():
    """The paper's Figure 2."""

    def ladders(**fields):
        model = CoFrNet(n_features=4, **fields)
        return {name: bank.depths for name in ("curves", "full") if (bank := getattr(model, name)) is not None}

    assert ladders(variant="F", n_ladders=3, depth=5) == {"full": (5, 5, 5)}
    assert ladders(variant="D", depth=5) == {"curves": (5,) * 4}
    assert ladders(variant="DL", n_ladders=3, depth=5) == {"curves": (5,) * 4, "full": (2, 3, 4)}
    assert ladders(variant="S", n_ladders=2, depth=1, ladders_per_feature=2) == {"curves": (1,) * 8, "full": (1, 1)}


def test_stacked_ladders_read_features_through_their_curves():
    model = CoFrNet(n_features=3, variant="S", n_ladders=4, ladders_per_feature=2, n_outputs=2, dtype=torch.float64)
    x = torch.randn(9, 3, generator=seeded(), dtype=torch.float64)
    curves = model.curves(x)
    full = model.full(torch.cat([x, curves], dim=1))
    with torch.no_grad():
        model.linear.normal_(generator=seeded(1))
        model.intercept.normal_(generator=seeded(2))
    expected = x @ model.linear.T + model.intercept + torch.cat([curves, full], dim=1) @ model.head.T
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_additive_exactly_when_diagonal(variant):
    """f(x) - f(y) splits into one-feature changes for D and for no other variant."""
    model = CoFrNet(n_features=3, variant=variant, ladders_per_feature=2, dtype=torch.float64, generator=seeded())
    x, y = torch.randn(2, 3, generator=seeded(1), dtype=torch.float64)
    mixed = y.repeat(3, 1)
    mixed.diagonal().copy_(x)
    interaction = (model(mixed) - model(y)).sum() - (model(x) - model(y)).sum()
    assert (abs(float(interaction.detach())) < 1e-12) == (variant == "D")


@pytest.mark.parametrize("variant", VARIANTS)
def test_leading_axes_strides_and_backends(variant):
    model = CoFrNet(n_features=4, variant=variant, n_outputs=2, subsets=((0, 2),), generator=seeded())
    x = torch.randn(3, 5, 4, generator=seeded(1))
    expected = torch.stack([model(part) for part in x])
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model(x.transpose(0, 1)), expected.transpose(0, 1))
    torch.testing.assert_close(model(x[0, 0]), expected[0, 0])
    assert model(x[:, :0]).shape == (3, 0, 2)
    with core.backend("reference"):
        torch.testing.assert_close(model(x), expected, rtol=0, atol=10 * ROUNDING[torch.float32])


@pytest.mark.parametrize("variant", VARIANTS)
def test_compiles_exports_and_maps_over_rows(variant):
    torch.compiler.reset()
    model = CoFrNet(n_features=4, variant=variant, n_outputs=2, generator=seeded()).eval()
    x = torch.randn(8, 4, generator=seeded(1))
    expected = model(x)
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    n = torch.export.Dim("n", min=2)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: n},))
    torch.testing.assert_close(program.module()(x[:3]), expected[:3])
    slopes = torch.func.vmap(torch.func.jacrev(model))(x)
    y = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(y)[:, 0].sum(), y)
    torch.testing.assert_close(slopes[:, 0], gradient)


@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("p", [1, 10, 1000, 12_500])
@pytest.mark.parametrize("kind", ["full", "diagonal", "subset"])
@pytest.mark.parametrize("depth", [2, 12])
def test_initial_rungs_stay_out_of_the_dead_zone(pole, p, kind, depth):
    options = {"pole": pole, "generator": seeded(p)}
    if kind == "full":
        bank = FullLadders(p, 8, depth, **options)
    elif kind == "diagonal":
        bank = DiagonalLadders(p, depth, ladders_per_feature=-(-20 // p), **options)
    else:
        bank = SubsetLadders(p, [(j % p, (j + 1) % p) if p > 1 else (0,) for j in range(20)], depth, **options)
    x = torch.randn(64, p, generator=seeded(1))
    with torch.no_grad():
        a = bank.partial_denominators(x)
        tails = core.tails(a, pole)[1:]
        assert core.clamped(a, pole).float().mean() < 0.002
        # The smooth reciprocal is steepest at 0 and flat at |t| = eps: tails should be spread over both.
        flat = (tails.abs() < 0.1) if pole == "clamp" else ((tails.abs() - 1).abs() < 0.1)
        assert flat.float().mean() < (0.002 if pole == "clamp" else 0.2)
        values = bank(x)
    assert 0.02 < values.std() < 3
    assert values.abs().max() < 30


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("p", [1, 10, 1000])
def test_first_scores_are_well_scaled(variant, pole, p):
    model = CoFrNet(n_features=p, variant=variant, pole=pole, n_outputs=3, generator=seeded(2))
    with torch.no_grad():
        scores = model(torch.randn(256, p, generator=seeded(3)))
    assert 0.01 < scores.std() < 3
    assert scores.abs().max() < 20


def test_generator_decides_the_initial_values():
    specs = CoFrNetSpec(n_features=4)
    state = torch.get_rng_state()
    one, two, other = (CoFrNet(specs, generator=seeded(s)).state_dict() for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator must not be touched"
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_spec_is_frozen_hashable_and_json():
    spec = CoFrNetSpec(n_features=4, variant="DL", n_ladders=2, depths=[3, 1], subsets=[[0, 1]], pole="clamp")
    again = CoFrNetSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert hash(again) == hash(spec)
    assert spec.epsilon == 0.1, "the default is written out, so that a stored spec keeps its meaning"
    with pytest.raises(AttributeError):
        spec.depth = 3
    with pytest.raises(ValueError, match=r"known fields only; got \['width'\]"):
        CoFrNetSpec.from_dict({**spec.to_dict(), "width": 3})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1; got n_features=0"),
        ({"variant": "X"}, "variant must be 'F', 'D', 'DL' or 'S'; got variant='X'"),
        ({"depth": -1}, "depth must be 0 or more; got depth=-1"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\); got dropout=1.0"),
        ({"depths": (1, 2)}, "each of the n_ladders=16 full ladders"),
        ({"subsets": ((0, 9),)}, r"distinct features from 0 to 3; got \(0, 9\)"),
        ({"subsets": ((),)}, r"one or more distinct features from 0 to 3; got \(\)"),
        ({"pole": "none"}, "pole must be 'smooth' or 'clamp'"),
        ({"epsilon": -1.0}, "epsilon must lie in"),
        ({"ladders_per_feature": 0}, "ladders_per_feature must be at least 1"),
    ],
)
def test_impossible_specs_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        CoFrNet(**{"n_features": 4, **fields})


def test_wrong_input_width_is_refused():
    with pytest.raises(ValueError, match=r"x must have 4 features on its last axis; got shape \(2, 3\)"):
        CoFrNet(n_features=4)(torch.ones(2, 3))
    with pytest.raises(TypeError, match="give a spec or its fields, not both"):
        CoFrNet(CoFrNetSpec(n_features=4), depth=3)


def test_dropout_acts_in_training_only():
    model = CoFrNet(n_features=4, dropout=0.5, generator=seeded())
    x = torch.randn(50, 4, generator=seeded(1))
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


def test_copies_moves_and_state_dicts():
    model = CoFrNet(n_features=4, variant="DL", subsets=((0, 1), (2,)), learn_epsilon=True, generator=seeded())
    x = torch.randn(5, 4, generator=seeded(1))
    other = CoFrNet(model.spec)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    torch.testing.assert_close(model.double()(x.double()).float(), other(x))
    assert model.to("meta")(x.double().to("meta")).shape == (5, 1)


def test_learned_epsilon_is_trained():
    model = CoFrNet(n_features=2, variant="D", learn_epsilon=True, generator=seeded())
    model(torch.randn(10, 2, generator=seeded(1))).square().sum().backward()
    assert model.curves.log_epsilon.grad != 0
    assert float(model.curves.epsilon.detach()) == pytest.approx(1.0)


def test_print_shows_what_there_is():
    text = str(CoFrNet(n_features=4, variant="DL", n_ladders=3, pole="clamp"))
    assert "(full): FullLadders(4, 3 ladders, depth=2..4, pole='clamp', epsilon=0.1)" in text


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("more", [{}, {"subsets": ((0, 1), (2,)), "learn_epsilon": True, "n_outputs": 3}])
def test_the_model_is_the_mean_of_its_members(variant, more):
    model = CoFrNet(
        n_features=4,
        variant=variant,
        n_members=3,
        ladders_per_feature=2,
        dtype=torch.float64,
        generator=seeded(),
        **more,
    )
    x = torch.randn(6, 4, generator=seeded(1), dtype=torch.float64)
    members = [model.member(i) for i in range(3)]
    scores = torch.stack([member(x) for member in members], dim=1)
    torch.testing.assert_close(model.member_scores(x), scores, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(model(x), scores.mean(1), rtol=1e-13, atol=1e-13)
    assert scores.std(1).min() > 0, "members start from values of their own"
    assert sum(p.numel() for member in members for p in member.parameters() if p.ndim) == sum(
        p.numel() for p in model.parameters() if p.ndim
    )


@pytest.mark.parametrize("variant", ["D", "DL", "S"])
def test_features_without_curves_are_read_as_they_are(variant):
    model = CoFrNet(n_features=3, variant=variant, curved=(1,), dtype=torch.float64, generator=seeded())
    x = torch.randn(6, 3, generator=seeded(1), dtype=torch.float64)
    assert model.curves.n_features == 1
    moved = x.clone()
    moved[:, 1] += 1
    assert not torch.allclose(model(moved), model(x))
    flat = CoFrNet(n_features=3, variant=variant, curved=(), generator=seeded())
    assert flat(x.float()).shape == (6, 1)
    assert flat.curves is None


def test_banks_with_members():
    x = torch.randn(7, 3, generator=seeded())
    bank = FullLadders(3, 5, [0, 1, 2, 3, 4], members=2, generator=seeded())
    assert bank(x).shape == (7, 2, 5)
    assert bank.partial_denominators(x).shape == (5, 7, 2, 5)
    assert bank.rungs()[0].shape == (2, 5, 5, 3)
    torch.testing.assert_close(core.ladder(bank.partial_denominators(x)), bank(x))


@pytest.mark.parametrize("variant", ["F", "D", "DL", "S"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("more", [{}, {"n_members": 3, "n_outputs": 3}, {"curved": (0, 2), "n_outputs": 2}])
def test_closed_form_scores_equal_the_graph_of_torch_operations(variant, pole, more):
    depths = {"depths": (2, 2, 2)} if variant == "DL" else {}
    model = CoFrNet(
        n_features=4,
        variant=variant,
        n_ladders=3,
        ladders_per_feature=2,
        pole=pole,
        dtype=torch.float64,
        generator=seeded(),
        **depths,
        **more,
    )
    with torch.no_grad():
        model.linear.normal_(generator=seeded(3))
    x = torch.randn(700, 4, generator=seeded(1), dtype=torch.float64).requires_grad_()
    fast = fused.member_scores(model, x)
    assert fast is not None
    slow = model.member_scores_by_autograd(x)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(fused.member_scores(model, x), slow.detach(), rtol=1e-12, atol=1e-12)
    g = torch.randn(slow.shape, generator=seeded(2), dtype=torch.float64)
    inputs = [x, *model.parameters()]
    for ours, theirs in zip(torch.autograd.grad(fast, inputs, g), torch.autograd.grad(slow, inputs, g), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_row_scores_the_same_wherever_it_stands():
    model = CoFrNet(n_features=5, n_members=3, n_outputs=2, generator=seeded())
    x = torch.randn(5000, 5, generator=seeded(1))
    among = fused.member_scores(model, x)
    torch.testing.assert_close(fused.member_scores(model, x.flip(0)).flip(2), among, **PLACES)
    for i in (0, 127, 128, 4999):
        torch.testing.assert_close(fused.member_scores(model, x[i : i + 1])[:, :, 0], among[:, :, i], **PLACES)


def test_closed_form_scores_can_be_differentiated_twice():
    model = CoFrNet(n_features=2, n_ladders=2, dtype=torch.float64, generator=seeded())
    x = torch.randn(3, 2, generator=seeded(1), dtype=torch.float64).requires_grad_()
    assert fused.member_scores(model, x) is not None
    assert torch.autograd.gradgradcheck(lambda x: model(x), x)


@pytest.mark.parametrize(
    "fields", [{"subsets": ((0, 1),)}, {"learn_epsilon": True}, {"depths": (1, 2, 3)}, {"linear": False}]
)
def test_closed_form_steps_aside(fields):
    model = CoFrNet(n_features=4, n_ladders=3, generator=seeded(), **fields)
    assert fused.member_scores(model, torch.randn(5, 4, generator=seeded())) is None
    assert model(torch.randn(5, 4, generator=seeded())).shape == (5, 1)
