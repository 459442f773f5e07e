"""Convolutional ladders and the classifier of images: against plain torch, and on images of lines."""

import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import cofrnet
from cofrnet.core import backend
from cofrnet.datasets import caltech256
from cofrnet.errors import ModelFileError
from cofrnet.estimators.image import CoFrNetImageClassifier
from cofrnet.estimators.pixels import as_images
from cofrnet.files import read_tensors, tensors_to_bytes
from cofrnet.images import ImageError, decoded, image_folder
from cofrnet.images.parquet import image_table
from cofrnet.nn import ChannelLadders, ConvLadder, ImageCoFrNet, ImageSpec
from cofrnet.training import Images, SkippedImagesWarning
from tests.test_datasets import has_data


def plain(module, x):
    """What `ChannelLadders` does, in torch operations of float64."""
    rows = x.movedim(1, -1)
    mean, variance = rows.mean((0, 1, 2)), rows.var((0, 1, 2), correction=0)
    if not module.training:
        mean, variance = module.running_mean.double(), module.running_var.double()
    u = (rows - mean) / (variance + 1e-5).sqrt()
    weight, bias = module.weight.double(), module.bias.double()
    t = weight[-1] * u + bias[-1]
    for k in range(module.depth - 1, -1, -1):
        t = weight[k] * u + bias[k] + t / (t * t + module.epsilon**2)
    return t.movedim(-1, 1)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_channels_are_normalised_and_bent(depth, last, training):
    torch.manual_seed(depth)
    module = ChannelLadders(5, depth, epsilon=0.7)
    with torch.no_grad():
        for part in module.parameters():
            part.normal_()
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 2)
    module.train(training)
    x = torch.randn(4, 5, 6, 7)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    slopes = torch.randn(4, 5, 6, 7)
    answers = []
    for compute, dtype in ((module, torch.float32), (lambda own: plain(module, own), torch.float64)):
        own = x.detach().to(dtype).requires_grad_()
        module.zero_grad()
        before = module.running_mean.clone(), module.running_var.clone()
        y = compute(own)
        (y * slopes).sum().backward()
        module.running_mean.copy_(before[0])
        module.running_var.copy_(before[1])
        answers.append([y.detach(), own.grad, module.weight.grad.clone(), module.bias.grad.clone()])
    for found, expected in zip(*answers, strict=True):
        torch.testing.assert_close(found.double(), expected.double(), atol=2e-3, rtol=2e-3)
    with backend("reference"), torch.no_grad():
        torch.testing.assert_close(module(x), answers[0][0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_second_derivatives_are_those_of_plain_operations(training):
    torch.manual_seed(0)
    module = ChannelLadders(3, 2).double().train(training)
    with torch.no_grad():
        for part in module.parameters():
            part.normal_()
    x = torch.randn(4, 3, 2, 2, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    found = []
    for way in ("fused", "reference"):
        with backend(way):
            own = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad((module(own) ** 2).sum(), own, create_graph=True)
            found.append(torch.autograd.grad((slope**2).sum(), [own, *module.parameters()]))
    for fused, plain_one in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain_one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows", [300, 40_000])
def test_moments_are_right_far_from_zero_and_on_several_threads(rows):
    from cofrnet.compiled.channels import bend, bend_gradients, moments

    rng = np.random.default_rng(0)
    x = (1000 + rng.normal(size=(rows, 8))).astype(np.float32)
    x[0] = 4000
    mean, variance = moments(x)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0), rtol=1e-4)
    w, b = rng.normal(size=(2, 3, 8)).astype(np.float32)
    g, y, out = (np.empty_like(x) for _ in range(3))
    g[:] = rng.normal(size=x.shape)
    inverse = (1 / np.sqrt(variance)).astype(np.float32)
    bend(x, mean, inverse, w, b, 1.0, y)
    by_w, by_b = bend_gradients(x, mean, inverse, w, b, 1.0, g, out, False)
    wide = [torch.from_numpy(own.astype(np.float64)).requires_grad_() for own in (x, w, b)]
    u = (wide[0] - torch.from_numpy(mean).double()) * torch.from_numpy(inverse).double()
    t = wide[1][2] * u + wide[2][2]
    for k in (1, 0):
        t = wide[1][k] * u + wide[2][k] + t / (t * t + 1)
    t.backward(torch.from_numpy(g.astype(np.float64)))
    np.testing.assert_allclose(y, t.detach(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(out, wide[0].grad, rtol=1e-3, atol=1e-3)
    for found, expected in ((by_w, wide[1].grad), (by_b, wide[2].grad)):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_what_is_no_number_stays_so_in_half_precision():
    module = ChannelLadders(2).eval()
    x = torch.tensor([[float("nan"), 1.0]]).view(1, 2, 1, 1).contiguous(memory_format=torch.channels_last).bfloat16()
    y = module(x)
    assert y[0, 0].isnan().all()
    assert not y[0, 1].isnan().any()


@pytest.mark.parametrize("training", [True, False])
def test_half_precision_is_single_precision_rounded(training):
    torch.manual_seed(0)
    module = ChannelLadders(6, 2).train(training)
    with torch.no_grad():
        for part in module.parameters():
            part.normal_()
    x = torch.randn(3, 6, 5, 7).contiguous(memory_format=torch.channels_last).bfloat16()
    g = torch.randn(3, 6, 5, 7).bfloat16()
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        own = x.detach().to(dtype).requires_grad_()
        module.zero_grad()
        y = module(own)
        assert y.dtype == dtype
        y.backward(g.to(dtype))
        found.append([y.detach(), own.grad, module.weight.grad.clone(), module.bias.grad.clone()])
    for half, single in zip(*found, strict=True):
        scale = single.abs().max()
        torch.testing.assert_close(half.float() / scale, single / scale, rtol=0.01, atol=0.004)
    torch.testing.assert_close(found[0][0], found[1][0].bfloat16(), rtol=0, atol=0)  # rounded to the nearest


def test_normalisation_folds_into_the_rungs():
    torch.manual_seed(0)
    module = ChannelLadders(3, 2)
    for _ in range(20):
        module(2 + 3 * torch.randn(16, 3, 4, 4))
    assert module.running_mean.mean() == pytest.approx(2, abs=0.5)
    assert module.running_var.mean() == pytest.approx(9, abs=2.5)
    module.eval()
    x = torch.randn(2, 3, 4, 4)
    weight, bias = module.folded()
    rows = x.movedim(1, -1)
    t = weight[2] * rows + bias[2]
    for k in (1, 0):
        t = weight[k] * rows + bias[k] + t / (t * t + 1)
    torch.testing.assert_close(module(x), t.movedim(-1, 1), atol=1e-5, rtol=1e-4)


def test_it_starts_as_a_function_that_rises():
    module = ChannelLadders(1).eval()
    u = torch.linspace(-20, 20, 4001)[None, None]
    assert (module(u).diff() > 0).all()


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 6, 8, 8)),
        ({"stride": 2}, (2, 6, 4, 4)),
        ({"groups": 2}, (2, 6, 8, 8)),
        ({"pool": "mean"}, (2, 6, 4, 4)),
        ({"pool": "max", "maxout": 2}, (2, 6, 4, 4)),
        ({"form": "rungs", "depth": 2}, (2, 6, 8, 8)),
        ({"form": "rungs", "depth": 1, "maxout": 3}, (2, 6, 8, 8)),
        ({"kernel_size": 1}, (2, 6, 8, 8)),
    ],
)
def test_convolutional_ladders_are_layers(options, shape):
    block = ConvLadder(4, 6, **options)
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    y = block(x)
    assert y.shape == shape
    y.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in block.parameters())
    with pytest.raises(ValueError, match="form must be"):
        ConvLadder(4, 6, form="other")


def test_rungs_are_convolutions_of_the_same_input():
    torch.manual_seed(0)
    block = ConvLadder(3, 2, depth=1, form="rungs").eval()
    x = torch.randn(2, 3, 5, 5)
    a = block.bend(block.conv(x)).view(2, 2, 2, 5, 5)
    torch.testing.assert_close(block(x), a[:, 0] + a[:, 1] / (a[:, 1] ** 2 + 1), atol=1e-5, rtol=1e-4)


def test_specs_are_plain_values():
    spec = ImageSpec(10, widths=(4, 8), residual=(False, True))
    assert ImageSpec.from_dict(spec.to_dict()) == spec
    for wrong in ({"widths": ()}, {"residual": (True,)}, {"n_outputs": 0}, {"stem_stride": 0}):
        with pytest.raises(ValueError, match="must be"):
            ImageSpec(**{"n_outputs": 2, **wrong})
    with pytest.raises(ValueError, match="known fields"):
        ImageSpec.from_dict({"n_outputs": 2, "color": 1})
    model = ImageCoFrNet(spec, torch.Generator().manual_seed(0))
    again = ImageCoFrNet(spec, torch.Generator().manual_seed(0))
    x = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(model.eval()(x), again.eval()(x))
    assert model(x).shape == (3, 10)
    assert sum(t.numel() for t in model.state_dict().values()) == spec.n_numbers


def test_images_are_shifted_and_flipped():
    x = torch.arange(2 * 3 * 8 * 6, dtype=torch.float32).view(2, 3, 8, 6)
    images = Images(x, torch.tensor([0, 1]), shift=2)
    torch.testing.assert_close(images.varied(torch.tensor([1, 0]), None), x[[1, 0]])
    wide = nn.functional.pad(x, (2,) * 4, mode="reflect")
    places = {(down, right, turned) for down in range(5) for right in range(5) for turned in (False, True)}
    cuts = {place: _cut(wide[0], *place) for place in places}
    seen = set()
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        found = images.varied(torch.tensor([0]), generator)[0]
        seen.add(next(place for place, cut in cuts.items() if torch.equal(cut, found)))
    assert seen == places
    batches = list(Images(x, torch.tensor([0, 1]), torch.ones(2)).batches(1, generator))
    assert sorted(int(y) for _, y, _ in batches) == [0, 1]


def _cut(wide, down, right, turned):
    cut = wide[:, down : down + 8, right : right + 6]
    return cut.flip(2) if turned else cut


def lines(n, seed=0, size=12):
    """Images of noise with a bright line: down or across."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 120, (n, size, size, 3), dtype=np.uint8)
    y = np.array(["across", "down"])[rng.integers(0, 2, n)]
    for image, label in zip(images, y, strict=True):
        place = rng.integers(0, size)
        image[(place, slice(None)) if label == "across" else (slice(None), place)] += 100
    return images, y


SMALL = {"widths": (6, 12), "n_ladders": 4, "max_epochs": 8, "batch_size": 32, "random_state": 0}


def test_it_learns_lines():
    X, y = lines(500)
    model = CoFrNetImageClassifier(**SMALL).fit(X, y)
    X_test, y_test = lines(200, seed=1)
    assert model.score(X_test, y_test) > 0.95
    np.testing.assert_allclose(
        model.predict_proba(X_test), model.predict_proba(torch.from_numpy(X_test).permute(0, 3, 1, 2)), atol=1e-6
    )
    np.testing.assert_allclose(model.predict_proba(X_test / 255.0), model.predict_proba(X_test), atol=2e-2)
    again = CoFrNetImageClassifier(**SMALL).fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X_test), model.decision_function(X_test))
    with pytest.raises(ValueError, match="12 by 12 pixels of 3 channel"):
        model.predict(X_test[:, :8])


def test_grey_images_several_classes_and_pixels():
    X, y = lines(300)
    labels = np.where(np.arange(300) % 3 == 0, "nothing", y)
    grey = X.mean(3).astype(np.uint8)
    model = CoFrNetImageClassifier(**{**SMALL, "max_epochs": 2}).fit(grey, labels)
    assert model.predict_proba(grey).shape == (300, 3)
    for variant in ("D", "DL"):
        pixels = CoFrNetImageClassifier(variant, max_epochs=2, random_state=0).fit(grey, y)
        assert np.isfinite(pixels.decision_function(grey)).all()


def test_training_resumes_with_running_statistics(tmp_path):
    X, y = lines(200)
    whole = CoFrNetImageClassifier(**{**SMALL, "max_epochs": 3}).fit(X, y)

    def stop(epoch):
        if epoch.number == 0:
            raise SystemExit

    settings = {**SMALL, "max_epochs": 3, "checkpoint": tmp_path / "c"}
    with pytest.raises(SystemExit):
        CoFrNetImageClassifier(**settings, callbacks=[stop]).fit(X, y)
    resumed = CoFrNetImageClassifier(**settings).fit(X, y)
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))
    stopping = CoFrNetImageClassifier(**SMALL, early_stopping=True, validation_fraction=0.2).fit(X, y)
    assert "validation_loss" in stopping.history_


def test_files_of_images(tmp_path):
    X, y = lines(100)
    for settings in ({}, {"variant": "D"}, {"variant": "DL"}):
        model = CoFrNetImageClassifier(**{**SMALL, "max_epochs": 1, **settings}).fit(X, y)
        twin = cofrnet.load(model.save(tmp_path / "m.cofrnet"))
        np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))
        other = model.set_params(variant="D" if model.variant == "conv" else "conv")  # for a fit to come
        again = cofrnet.load(other.save(tmp_path / "other.cofrnet"))
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
        tensors, about = read_tensors(tmp_path / "m.cofrnet")
        about.pop("format")
        spec = about["spec"]
        strange = [{"shape": [4, 12, 12]}, {"shape": [3, 12]}, {"shape": "x"}, {"spec": {**spec, "n_outputs": 10**12}}]
        if settings:
            strange.append({"shape": [3, 12, 13]})
        else:
            wrong = ({"widths": [10**9, 12]}, {"widths": [6]}, {"widths": [6.0, 12]}, {"pool": "min"}, {"x": 1})
            strange += [{"spec": {**spec, **own}} for own in wrong]
        for change in strange:
            (tmp_path / "bad.cofrnet").write_bytes(tensors_to_bytes(tensors, {**about, **change}))
            with pytest.raises(ModelFileError):
                cofrnet.load(tmp_path / "bad.cofrnet")


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.zeros((3, 4)), "must be images"),
        (np.array([["a"]]), "must be images"),
        (np.zeros((2, 0, 4, 3)), "at least one pixel"),
        (np.zeros((2, 4, 4, 7)), "1, 3 or 4 channels"),
        ([np.zeros((4, 4)), np.zeros((5, 4))], "one size"),
        (np.full((1, 2, 2), np.nan), "must be finite"),
    ],
)
def test_strange_images_are_named(X, said):
    with pytest.raises(ValueError, match=said):
        as_images(X)


def test_all_kinds_of_pixels():
    X = lines(3)[0]
    expected = as_images(X).float()
    for given in (X.astype(np.int64), X.astype(np.float32), list(X), torch.from_numpy(X).permute(0, 3, 1, 2)):
        torch.testing.assert_close(as_images(given).float(), expected)
    torch.testing.assert_close(as_images(X.astype(np.uint16) * 257), expected, atol=0.01, rtol=0)


# ------------------------------------------------------------------------------------------ files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of images as ImageNet has it, with some that are strange, and a list of those that cannot be read."""
    root = tmp_path_factory.mktemp("pictures")
    X, y = lines(120, size=20)
    for i, (pixels, label) in enumerate(zip(X, y, strict=True)):
        (root / label).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(root / label / f"{i:03}.png")
    return root


def spoiled(folder, to):
    """A copy of the folder with files that are no images, or hardly any."""
    shutil.copytree(folder, to)
    first = next((to / "down").iterdir())
    whole = first.read_bytes()
    (to / "down" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (to / "down" / "empty.jpg").write_bytes(b"")
    (to / "across" / "text.jpeg").write_text("not an image")
    (to / "across" / "bomb.png").write_bytes(_bomb())
    return {"cut.png", "empty.jpg", "text.jpeg", "bomb.png"}


def _bomb():
    """The head of a PNG file that claims to be 100 000 by 100 000 pixels."""
    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + chunk


FILES = {**SMALL, "size": 20, "max_epochs": 12, "workers": 0, "augment": False}


def test_folders_are_read_as_they_are_trained_on(folder):
    model = CoFrNetImageClassifier(**FILES).fit(folder)
    assert list(model.classes_) == ["across", "down"]
    assert model.shape_ == (3, 20, 20)
    files, codes, names = image_folder(folder)
    labels = np.array(names)[codes]
    assert model.score(files, labels) > 0.8
    arrays = np.stack([decoded(file, (20, 20)) for file in files])
    np.testing.assert_allclose(model.decision_function(arrays), model.decision_function(files), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(str(files[0])), model.decision_function(files)[:1], atol=1e-5)
    parallel = CoFrNetImageClassifier(**{**FILES, "workers": 2}).fit([str(file) for file in files], labels)
    np.testing.assert_allclose(parallel.decision_function(files), model.decision_function(files), atol=1e-4)


def test_files_that_cannot_be_read_are_named_or_left_out(folder, tmp_path):
    bad = spoiled(folder, tmp_path / "spoiled")
    with pytest.raises(ImageError, match=r"must be an image that can be read|at most 100000000 pixels"):
        CoFrNetImageClassifier(**FILES).fit(tmp_path / "spoiled")
    with pytest.warns(SkippedImagesWarning, match="4 of 124 files cannot be read"):
        model = CoFrNetImageClassifier(**{**FILES, "size": 12, "max_epochs": 2}, on_error="skip").fit(
            tmp_path / "spoiled"
        )
    assert {Path(name).name for name in model.skipped_} == bad
    with pytest.warns(SkippedImagesWarning, match="cannot be read"):
        stopped = CoFrNetImageClassifier(
            **{**FILES, "size": 12, "max_epochs": 1}, early_stopping=True, validation_fraction=0.5, on_error="skip"
        ).fit(tmp_path / "spoiled")
    assert {Path(name).name for name in stopped.skipped_} == bad
    with pytest.raises(ImageError, match=r"text\.jpeg"):
        model.predict([tmp_path / "spoiled" / "across" / "text.jpeg"])
    with pytest.raises(ValueError, match="sample_weight must be None for files"):
        CoFrNetImageClassifier(**FILES).fit(folder, sample_weight=np.ones(120))
    with pytest.raises(ValueError, match="size must be"):
        CoFrNetImageClassifier(**{**FILES, "size": (1, 2, 3)}).fit(folder)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "I;16", "1", "CMYK", "F"])
def test_pictures_of_every_kind(mode):
    grey = np.tile(np.linspace(0, 255, 40).astype(np.uint8), (30, 1))
    if mode == "I;16":
        image = Image.fromarray(grey.astype(np.uint16) * 257)
    elif mode == "F":
        image = Image.fromarray(grey.astype(np.float32))
    else:
        image = Image.fromarray(grey).convert(mode)
    pixels = decoded(image, (10, 12))
    assert (pixels.shape, pixels.dtype) == ((10, 12, 3), np.uint8)
    assert decoded(image, (10, 12), channels=1).shape == (10, 12, 1)
    rising = pixels[5, :, 0].astype(int)
    assert rising[-1] > rising[0] + 100
    file = io.BytesIO()
    Image.fromarray(grey).save(file, "png")
    np.testing.assert_array_equal(decoded(file.getvalue())[..., 0], grey)


def test_what_is_transparent_is_white():
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    assert (decoded(image) == 255).all()


@has_data
def test_the_real_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.setenv("COFRNET_CACHE", str(tmp_path))
    train, val = caltech256()
    small = {"widths": (8, 16, 32), "size": 32, "max_epochs": 3, "batch_size": 64, "random_state": 0}
    model = CoFrNetImageClassifier(**small).fit(train)
    files, codes, names = image_folder(val)
    assert model.score(files, np.array(names)[codes]) > 0.3


# ------------------------------------------------------------------------------------------ what pixels do


@pytest.fixture(scope="module")
def fitted():
    return CoFrNetImageClassifier(**SMALL).fit(*lines(300))


def test_slopes_are_those_of_plain_torch_operations(fitted):
    """The closed forms of the kernels against autograd through the recurrence, and against differences."""
    X = lines(6, seed=3)[0]
    explanation = fitted.explain_local(X, method="gradient")
    images = torch.from_numpy(X).permute(0, 3, 1, 2).float()
    fitted.model_.precision = "float32"
    with backend("reference"):
        x = images.clone().requires_grad_()
        expected = torch.autograd.grad(fitted.model_(x).sum(), x)[0].sum(1)
    np.testing.assert_allclose(explanation.values[:, 0], expected, atol=1e-5)
    changed = images.clone()
    changed[:, :, 4, 5] += 0.5
    with torch.no_grad():
        rise = (fitted.model_(changed) - fitted.model_(images))[:, 0] / 0.5
    np.testing.assert_allclose(explanation.values[:, 0, 4, 5], rise, atol=2e-4)


def test_pixels_add_up(fitted):
    X = lines(30, seed=4)[0]
    explanation = fitted.explain_local(X)
    total = explanation.values.sum((2, 3)) + explanation.base_values
    np.testing.assert_allclose(total + explanation.gap, explanation.scores, atol=1e-4)
    assert np.abs(explanation.gap).max() < 2e-3 * np.ptp(explanation.scores)
    other = fitted.explain_local(X[:3], baseline=X[5])
    assert other.values.shape == (3, 1, 12, 12)
    assert "pixel" in str(explanation)
    assert len(explanation.columns()["value"]) == 30 * 144
    with pytest.raises(ValueError, match="method must be"):
        fitted.explain_local(X, method="other")


def test_smoothed_values_are_means_of_neighbours(fitted):
    explanation = fitted.explain_local(lines(2)[0])
    found = explanation.smoothed(1).values
    np.testing.assert_allclose(found[:, :, 4, 7], explanation.values[:, :, 3:6, 6:9].mean((2, 3)), rtol=1e-5)
    assert found.shape == explanation.values.shape
    assert explanation.smoothed(0) is explanation


def test_several_classes_have_pixels_each():
    X, y = lines(90)
    labels = np.where(np.arange(90) % 3 == 0, "nothing", y)
    model = CoFrNetImageClassifier(**{**SMALL, "max_epochs": 1}).fit(X, labels)
    whole = model.explain_local(X[:2], top=None)
    assert whole.values.shape == (2, 3, 12, 12)
    first = model.explain_local(X[:2])
    assert (first.which[:, 0] == whole.scores.argmax(1)).all()
    for i, c in enumerate(first.which[:, 0]):
        np.testing.assert_allclose(first.values[i, 0], whole.values[i, c], atol=1e-3 * np.ptp(whole.scores))
    assert set(first.columns()["output"]) == {first.output_names[c] for c in first.which[:, 0]}
    with pytest.raises(ValueError, match="top must be None, or 1 or more"):
        model.explain_local(X[:2], top=0)
    pixels = CoFrNetImageClassifier("DL", max_epochs=1, random_state=0).fit(X, y)
    explanation = pixels.explain_local(X[:2], top=None)
    total = explanation.values.sum((2, 3)) + explanation.base_values + explanation.gap
    np.testing.assert_allclose(total, explanation.scores, atol=1e-4)


# ---------------------------------------------------------------------------------------------- images in Parquet


def png(pixels):
    memory = io.BytesIO()
    Image.fromarray(pixels).save(memory, "png")
    return memory.getvalue()


def test_an_image_scores_alone_as_among_others():
    X, y = lines(40)
    dark = X.copy()
    dark[3] = dark[3] // 200  # pixels of 0 and 1
    for images in (dark, dark.astype(np.float32), dark.astype(np.float32) / 255, dark.astype(np.uint16) * 257):
        model = CoFrNetImageClassifier(**SMALL | {"max_epochs": 1}).fit(images, y)
        np.testing.assert_allclose(model.decision_function(images[3:4]), model.decision_function(images)[3], atol=1e-2)
    with pytest.raises(ValueError, match="pixels must be from 0 to 255"):
        model.fit(X.astype(np.int32) + 300, y)


def test_pil_images_are_read_as_files_are():
    colour = lines(20)[0]
    pictures = [Image.fromarray(image) for image in colour]
    assert (as_images(pictures).permute(0, 2, 3, 1).numpy() == colour).all()
    assert as_images([picture.convert("P") for picture in pictures]).shape[1] == 3
    assert as_images([picture.convert("L") for picture in pictures]).shape[1] == 1
    mixed = [pictures[0].convert("L"), pictures[1].convert("CMYK"), pictures[2].convert("1")]
    assert as_images(mixed).shape == (3, 3, 12, 12)


def test_a_training_that_runs_away_is_told():
    X, y = lines(40)
    with pytest.raises(ValueError, match="learning_rate must be 'auto' or positive and finite"):
        CoFrNetImageClassifier(**SMALL | {"learning_rate": np.inf}).fit(X, y)
    model = CoFrNetImageClassifier(**SMALL | {"learning_rate": 1e30})
    with pytest.raises(ValueError, match=r"the loss must stay finite.*Lower learning_rate"):
        model.fit(X, y)
    assert not hasattr(model, "model_")


def test_folders_without_classes_are_predicted(folder):
    model = CoFrNetImageClassifier(**SMALL | {"max_epochs": 1, "workers": 0}).fit(folder)
    one = next(own for own in Path(folder).iterdir() if own.is_dir())
    files = sorted(one.glob("*.*"))
    np.testing.assert_allclose(model.predict_proba(one), model.predict_proba(files), atol=1e-6)
    np.testing.assert_allclose(
        model.predict_proba(np.array(list(map(str, files)))), model.predict_proba(files), atol=1e-6
    )
    with pytest.raises(ValueError, match="y must"):
        model.fit(one)


def test_a_fit_that_had_ended_is_not_trained_on(tmp_path):
    X, y = lines(60)
    held, labels = lines(30, seed=2)
    options = SMALL | {"max_epochs": 30, "early_stopping": True, "n_iter_no_change": 2, "learning_rate": 0.2}
    ends = []
    for _ in range(3):
        model = CoFrNetImageClassifier(**options, checkpoint=tmp_path / "c.ckpt").fit(X, y, X_val=held, y_val=labels)
        ends.append((model.n_iter_, digest(model)))
    assert len(set(ends)) == 1


@pytest.mark.parametrize("change", [{"augment": False}, {"precision": "bfloat16"}])
def test_checkpoints_of_other_settings_are_refused(tmp_path, change):
    X, y = lines(40)
    options = SMALL | {"max_epochs": 2, "checkpoint": tmp_path / "c.ckpt", "precision": "float32"}
    CoFrNetImageClassifier(**options).fit(X, y)
    with pytest.raises(ValueError, match="another"):
        CoFrNetImageClassifier(**options | change).fit(X, y)


def test_fitting_leaves_the_global_random_state_alone():
    X, y = lines(40)
    before = torch.get_rng_state()
    CoFrNetImageClassifier(**SMALL | {"max_epochs": 1}).fit(X, y)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"widths": 32}, "widths must be a list"),
        ({"residual": 1}, "residual must be a list"),
        ({"n_iter_no_change": "x"}, "n_iter_no_change must be None"),
        ({"widths": (4, 4, 4, 4, 4)}, "at least 16 by 16 pixels for 5 stages"),
        ({"stem_stride": 0}, "stem_stride must be 'auto'"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    X, y = lines(20)
    with pytest.raises(ValueError, match=said):
        CoFrNetImageClassifier(**SMALL | settings).fit(X, y)


@pytest.mark.parametrize("wrapped", [True, False])
def test_parquet_holds_images(tmp_path, wrapped):
    import pyarrow as pa
    from pyarrow import parquet as pq

    X, names = lines(40)
    stored = [png(image) for image in X]
    column = [{"bytes": own, "path": None} for own in stored] if wrapped else stored
    pq.write_table(pa.table({"image": column, "label": names}), tmp_path / "t.parquet", row_group_size=7)
    images, labels = image_table(tmp_path / "t.parquet", target="label")
    assert (labels == names).all()
    assert str(images[3]) == f"row 3 of {tmp_path / 't.parquet'}"
    assert (decoded(images[3]) == X[3]).all()
    options = {"widths": (4,), "max_epochs": 1, "random_state": 0, "workers": 0}
    model = CoFrNetImageClassifier(**options).fit(images, labels)
    of_arrays = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(tmp_path / "t.parquet"), of_arrays, atol=1e-6)


def test_strange_tables_of_images_are_named(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet as pq

    def table(**columns):
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    with pytest.raises(ImageError, match="one column of bytes"):
        image_table(table(x=[1, 2]))
    with pytest.raises(ImageError, match=r"one column of bytes.*'a', 'b'"):
        image_table(table(a=[b""], b=[b""]))
    with pytest.raises(ImageError, match=r"column 'y'.*its columns are a"):
        image_table(table(a=[b""]), target="y")
    with pytest.raises(ImageError, match="row 1 has none"):
        image_table(table(a=[b"", b""], y=["u", None]), target="y")
    with pytest.raises(ImageError, match=r"row 1 of .*cannot"):
        decoded(image_table(table(a=[b"x", None]))[0][1])
    (tmp_path / "n.parquet").write_text("no table")
    with pytest.raises(ImageError, match="must be a Parquet file"):
        image_table(tmp_path / "n.parquet")


# ---------------------------------------------------------------------------------------------- other runtimes


@pytest.mark.parametrize("options", [{}, {"variant": "DL", "n_ladders": 2}, {"pool": "max"}])
def test_other_runtimes_give_the_same_probabilities(tmp_path, options):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = lines(60)
    model = CoFrNetImageClassifier(**SMALL | options | {"max_epochs": 2}).fit(X, y)
    model.to_onnx(tmp_path / "m.onnx")
    model.to_torch(tmp_path / "m.pt2")
    pixels = X.transpose(0, 3, 1, 2).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    label, found = session.run(["label", "probabilities"], {"images": pixels})
    model.model_.precision = "float32"
    expected = model.predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (label == model.predict(X)).all()
    program = torch.export.load(tmp_path / "m.pt2").module()
    np.testing.assert_allclose(program(torch.from_numpy(pixels[:7])).numpy(), expected[:7], atol=1e-5)
    with pytest.raises(ValueError, match="explain_local"):
        model.to_onnx(tmp_path / "m.onnx", contributions=True)


# ---------------------------------------------------------------------------------------------- several processes


TOGETHER = """
import json, sys
import numpy as np
from cofrnet import CoFrNetImageClassifier
from cofrnet.training import joined
from tests.test_images import SMALL, digest, lines

X, y = lines(200)
with joined() as (crew, device):
    assert device == "auto" and crew.size == {size}
    plain = CoFrNetImageClassifier("D", depth=2, augment=False, max_epochs=2, batch_size=32, random_state=0).fit(X, y)
    conv = CoFrNetImageClassifier(**SMALL | {{"workers": 0}}).fit({folder!r})
    found = [plain.decision_function(X[:5]).tolist(), digest(plain), digest(conv), conv.history_["loss"]]
    print("found", json.dumps(found), flush=True)
"""


def digest(model):
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.model_.state_dict().values())).hexdigest()


def test_processes_that_torchrun_starts_train_one_model(folder, tmp_path):
    (tmp_path / "script.py").write_text(TOGETHER.format(size=2, folder=str(folder)))
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(tmp_path / "script.py")]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(part.splitlines()[0]) for part in done.stdout.split("found ")[1:])
    assert first == second  # the same weights to the last bit
    X, y = lines(200)
    alone = CoFrNetImageClassifier("D", depth=2, augment=False, max_epochs=2, batch_size=32, random_state=0).fit(X, y)
    np.testing.assert_allclose(first[0], alone.decision_function(X[:5]), atol=1e-4)
    assert first[3][-1] < first[3][0]
