"""The fused operator inside torch: derivatives of derivatives, transforms, compilation, export, memory layouts."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.func import grad, jacrev, vmap

import cofrnet
from cofrnet.compiled import team
from cofrnet.compiled.settings import has_numba, uses_numba
from cofrnet.core import backend, ladder, sensitivities, tails
from tests.tolerances import PRODUCTS, ROUNDING

KINDS = ("smooth", "clamp")
LARGE = (9, 1300, 100)  # above team.PARALLEL_FROM


def example(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def away_from_the_kink(a, pole):
    """Rows whose tails keep away from |t| = eps, where the clamp has no derivative."""
    return a if pole == "smooth" else a[:, ((tails(a, pole).abs() - 0.1).abs() > 1e-3).all(0)]


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_first_and_second_derivatives(pole, depth):
    a = away_from_the_kink(example(depth + 1, 8), pole).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ladder(a, pole), a)
    assert torch.autograd.gradgradcheck(lambda a: ladder(a, pole), a)
    assert torch.autograd.gradgradcheck(lambda a: sensitivities(a, pole), a)


def test_operator_is_registered_as_torch_wants_it():
    a, g = example(4, 3, 2).requires_grad_(), example(3, 2, seed=1).requires_grad_()
    torch.library.opcheck(torch.ops.cofrnet.ladder.default, (a, 0, 1.0, True))
    torch.library.opcheck(torch.ops.cofrnet.ladder.default, (example(3, 4, 2).requires_grad_(), 1, 0.1, False))
    torch.library.opcheck(torch.ops.cofrnet.sensitivity_products.default, (g, a, 0, 1.0, True))


@pytest.mark.parametrize("pole", KINDS)
def test_functional_transforms(pole):
    a = away_from_the_kink(example(5, 12), pole)  # (d+1, n)
    n = a.shape[1]
    s = sensitivities(a, pole)
    jacobian = jacrev(lambda a: ladder(a, pole))(a)  # (n, d+1, n)
    torch.testing.assert_close(torch.einsum("nkn->kn", jacobian), s)
    per_row = vmap(grad(lambda a: ladder(a, pole)), in_dims=1, out_dims=1)(a)
    torch.testing.assert_close(per_row, s)
    nested = vmap(vmap(lambda a: ladder(a, pole), in_dims=1), in_dims=2)(a.reshape(5, 1, n))
    torch.testing.assert_close(nested.flatten(), ladder(a, pole))
    curvature = vmap(jacrev(jacrev(lambda a: ladder(a, pole))), in_dims=1)(a)  # (n, d+1, d+1)
    with backend("reference"):
        expected = torch.stack([torch.autograd.functional.hessian(lambda a: ladder(a, pole), row) for row in a.T])
    torch.testing.assert_close(curvature, expected)


@pytest.mark.parametrize("pole", KINDS)
def test_compile_without_graph_breaks(pole):
    torch.compiler.reset()
    a = example(5, 30, 4, dtype=torch.float32).requires_grad_()

    def loss(a):
        return ladder(a * 2, pole).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (ours,) = torch.autograd.grad(compiled(a), a)
    (expected,) = torch.autograd.grad(loss(a), a)
    torch.testing.assert_close(ours, expected)


def test_export_keeps_the_operator_and_the_numbers():
    class Module(torch.nn.Module):
        def forward(self, a):
            return ladder(a, "smooth", 0.5) + 1

    a = example(4, 6)
    program = torch.export.export(Module(), (a,), dynamic_shapes={"a": {1: torch.export.Dim("n", min=2)}})
    assert "cofrnet.ladder" in str(program.graph)
    longer = example(4, 50, seed=2)
    torch.testing.assert_close(program.module()(longer), Module()(longer))


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_memory_layout_gives_the_same_numbers(pole, dtype):
    a = example(5, 33, 7, 3, dtype=dtype)
    g = example(33, 7, 3, seed=1, dtype=dtype)
    b = a.clone().requires_grad_()
    value = ladder(b, pole)
    (gradient,) = torch.autograd.grad(value, b, g)
    layouts = {
        "rungs in the middle": a.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3),
        "rungs last": a.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
        "batch reversed": a.permute(0, 3, 2, 1).contiguous().permute(0, 3, 2, 1),
        "sliced": torch.cat([a, a], dim=2)[:, :, :7],
        "every second": torch.stack([a, a], dim=-1)[..., 0],
    }
    for name, layout in layouts.items():
        assert torch.equal(layout, a), name
        layout = layout.detach().requires_grad_()
        assert torch.equal(ladder(layout, pole), value), name
        (ours,) = torch.autograd.grad(ladder(layout, pole), layout, g)
        assert torch.equal(ours, gradient), name
    spread = a[:, :, :1].expand(5, 33, 7, 3)
    assert torch.equal(ladder(spread, pole), value[:, :1].expand(33, 7, 3))


def test_no_copy_is_made_of_a_dense_layout():
    """What full and subset ladders make: feature-first in memory, (d+1, L, n) and (L, d+1, n)."""
    a = example(5, 30, 20).transpose(1, 2)
    assert ladder(a).stride() == (1, 20)
    b = example(30, 5, 20).permute(1, 2, 0)
    assert ladder(b).stride() == (1, 20)


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_thread_count_does_not_matter(pole, dtype):
    a = example(*LARGE, dtype=dtype).requires_grad_()
    assert a.numel() > team.PARALLEL_FROM
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            value = ladder(a, pole)
            (gradient,) = torch.autograd.grad(value.sum(), a)
            results.append((value, gradient))
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_a_row_does_not_depend_on_its_neighbours():
    a = example(*LARGE, dtype=torch.float32)
    whole = ladder(a)
    for start, stop in [(0, 1), (3, 20), (150, 200)]:
        assert torch.equal(ladder(a[:, start:stop]), whole[start:stop])


def test_many_python_threads_at_once():
    a = example(*LARGE, dtype=torch.float32)
    expected = ladder(a)
    with ThreadPoolExecutor(8) as pool:
        for value in pool.map(lambda _: ladder(a), range(64)):
            assert torch.equal(value, expected)


def _child(queue):
    torch.set_num_threads(2)  # torch's own operations are kept small: its threads do not survive a fork
    queue.put(ladder(example(*LARGE, dtype=torch.float32))[:5].tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_can_go_on():
    expected = ladder(example(*LARGE, dtype=torch.float32))[:5].tolist()  # starts threads in the parent
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(timeout=60)
    assert child.exitcode == 0


def run_python(code, **environment):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_without_numba_the_reference_gives_the_same_numbers():
    code = """
import sys
sys.modules["numba"] = None
import importlib.util
import torch
from cofrnet.core import ladder, sensitivities
assert "cofrnet.core.kernels" not in sys.modules
a = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(6, 10).requires_grad_()
f = ladder(a)
(gradient,) = torch.autograd.grad(f.sum(), a)
op = torch.ops.cofrnet.ladder.default(a, 0, 1.0, True)
assert torch.equal(op, f)
assert "cofrnet.core.kernels" not in sys.modules
print(f.tolist(), gradient.flatten().tolist(), sensitivities(a).flatten().tolist(), sep="\\n")
"""
    f, gradient, s = (torch.tensor(eval(line)) for line in run_python(code).splitlines())
    a = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(6, 10)
    torch.testing.assert_close(f.double(), ladder(a), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient.double().reshape(6, 10), sensitivities(a), rtol=0, atol=1e-6)
    torch.testing.assert_close(s.double().reshape(6, 10), sensitivities(a), rtol=0, atol=1e-6)


def test_compiled_kernels_are_cached_on_disk(tmp_path):
    code = """
import torch
from cofrnet.compiled import strips
from cofrnet.core import ladder
ladder(torch.ones(3, 4))
print(sum(strips._value.stats.cache_hits.values()))
"""
    hits = [run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).strip() for _ in range(2)]
    assert hits == ["0", "1"]
    assert list(tmp_path.rglob("*.nbi"))


def test_tolerances_are_not_idle():
    """The fused result differs from the reference somewhere, so that comparing the two is a test."""
    a = example(*LARGE, dtype=torch.float32)
    with backend("reference"):
        expected = ladder(a)
    difference = (ladder(a) - expected).abs().max()
    assert 0 < difference < 10 * ROUNDING[torch.float32]
    assert PRODUCTS[torch.float32] > ROUNDING[torch.float32]


def test_backends_that_overlap_leave_nothing_behind():
    first, second = backend("reference"), backend("reference")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not uses_numba()
    second.__exit__(None, None, None)
    assert uses_numba() == has_numba


def test_kernels_are_compiled_again_when_another_module_changes(tmp_path):
    """Scores of rows have code of `strips` in them; numba itself would look at the file of scores alone."""
    own = tmp_path / "cofrnet"
    shutil.copytree(Path(cofrnet.__file__).parent, own, ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import torch
from cofrnet.nn import CoFrNet

torch.set_grad_enabled(False)
print(CoFrNet(n_features=1, n_ladders=1, variant="F", generator=torch.Generator().manual_seed(0))(torch.ones(1, 1)))
"""

    def score():
        return run_python(script, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    before, strips = score(), own / "compiled" / "strips.py"
    source = strips.read_text()
    changed = source.replace("t[j] = (w * x[j] + b) + (u if near", "t[j] = (w * x[j] + b) - (u if near")
    assert changed != source
    strips.write_text(changed)
    assert score() != before
