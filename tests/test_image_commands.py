"""Images on the command line and in the page, in a real browser."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import cofrnet
from cofrnet import CoFrNetImageClassifier
from cofrnet.cli import app
from tests.test_images import SMALL, lines
from tests.test_report import HOSTILE, browser, in_a_browser, opened  # noqa: F401

SETTINGS = [part for k, v in SMALL.items() if k != "random_state" for part in ("--set", f"{k}={v}")]


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for part, seed in (("train", 0), ("test", 1)):
        for i, (image, label) in enumerate(zip(*lines(120, seed=seed), strict=True)):
            (root / part / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(root / part / label / f"{i:03d}.png")
    return root


@pytest.fixture(scope="module")
def model(folder):
    path = folder / "m.cofrnet"
    result = CliRunner().invoke(app, ["fit", str(folder / "train"), "-o", str(path), "--set", "workers=0", *SETTINGS])
    assert result.exit_code == 0, result.output
    assert "120 images of 2 classes" in result.output
    return path


def test_predictions_of_folders_and_files_are_those_of_the_model(run, folder, model, tmp_path):
    result = run("predict", model, folder / "test", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out.csv")
    own = cofrnet.load(model)
    np.testing.assert_allclose(found["probability_down"], own.predict_proba(folder / "test")[:, 1], atol=1e-9)
    assert found["image"].tolist() == sorted(str(path) for path in (folder / "test").rglob("*.png"))
    for named in (folder / "test" / "down", found["image"].iloc[-1]):
        result = run("predict", model, named, "-o", tmp_path / "one.csv")
        assert result.exit_code == 0, result.output
        one = pd.read_csv(tmp_path / "one.csv").iloc[-1]
        assert one["probability_down"] == pytest.approx(found["probability_down"].iloc[-1], abs=1e-6)


def test_folders_say_how_good_it_is(run, folder, model):
    result = run("evaluate", model, folder / "test", "--json")
    assert result.exit_code == 0, result.output
    accuracy = next(m for m in json.loads(result.stdout)["metrics"] if m["name"] == "accuracy")
    assert accuracy["value"] > 0.85
    result = run("info", model)
    assert "12 by 12 pixels, 3 channels" in result.output


def test_parquet_is_fitted_and_measured(run, tmp_path):
    X, y = lines(80)
    stored = []
    for image in X:
        memory = io.BytesIO()
        Image.fromarray(image).save(memory, "png")
        stored.append(memory.getvalue())
    pd.DataFrame({"photo": stored, "way": y}).to_parquet(tmp_path / "t.parquet")
    out = tmp_path / "m.cofrnet"
    arguments = ["--image", "photo", "-t", "way", "--test", "0.25", "--set", "workers=0", *SETTINGS, "--json"]
    result = run("fit", tmp_path / "t.parquet", "-o", out, *arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["task"] == "image"
    assert told["test"]["accuracy"]["value"] > 0.5
    assert told["parameters"] == sum(p.numel() for p in cofrnet.load(out).model_.parameters())
    result = run("evaluate", out, tmp_path / "t.parquet", "-t", "way")
    assert result.exit_code == 0, result.output
    assert "80 rows" in result.output


def test_images_of_all_kinds_of_names_are_predicted(run, folder, model, tmp_path):
    (tmp_path / "sub").mkdir()
    picture = next((folder / "test" / "down").glob("*.png")).read_bytes()
    for name in (b"a.png", b"bad\xff.png", b"sub/b.PNG"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(picture)
    (tmp_path / "d.png").mkdir()
    result = run("predict", model, tmp_path, "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out.csv")
    assert len(found) == 3
    assert (found["prediction"] == "down").all()


def test_a_table_of_two_columns_of_bytes_is_read_again(run, tmp_path):
    X, y = lines(30)
    stored = []
    for image in X:
        memory = io.BytesIO()
        Image.fromarray(image).save(memory, "png")
        stored.append(memory.getvalue())
    pd.DataFrame({"photo": stored, "mask": stored, "way": y}).to_parquet(tmp_path / "t.parquet")
    out = tmp_path / "m.cofrnet"
    short = ["--set", "widths=4,", "--set", "max_epochs=1", "--set", "workers=0"]
    result = run("fit", tmp_path / "t.parquet", "--image", "photo", "-t", "way", "-o", out, *short)
    assert result.exit_code == 0, result.output
    for command in (["predict", out, tmp_path / "t.parquet"], ["evaluate", out, tmp_path / "t.parquet"],
                    ["report", out, tmp_path / "t.parquet", "-o", tmp_path / "r.html"]):  # fmt: skip
        result = run(*command)
        assert result.exit_code == 0, result.output
    assert "How good it is" in (tmp_path / "r.html").read_text()


def test_files_that_cannot_be_read_are_not_measured_on(run, tmp_path):
    X, y = lines(24)
    for i, (image, label) in enumerate(zip(X, y, strict=True)):
        (tmp_path / "f" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "f" / label / f"{i}.png")
        if i < 8:
            (tmp_path / "f" / label / f"{i}.png").write_bytes(b"no image")
    short = ["--set", "widths=4,", "--set", "max_epochs=1", "--set", "workers=0", "--set", "on_error=skip"]
    result = run("fit", tmp_path / "f", "--test", "0.5", "-o", tmp_path / "m.cofrnet", *short)
    assert result.exit_code == 0, result.output
    assert "held out" in result.output


def test_images_are_explained_drawn_and_exported(run, folder, model, tmp_path):
    result = run("explain", "local", model, folder / "test", "--rows", "5-6", "-o", tmp_path / "why.parquet")
    assert result.exit_code == 0, result.output
    why = pd.read_parquet(tmp_path / "why.parquet")
    assert len(why) == 2 * 12 * 12
    assert sorted(set(why["row"])) == [5, 6]
    for option in ([], ["--row", "3"]):
        result = run("plot", model, folder / "test", "-o", tmp_path / "g.png", *option)
        assert result.exit_code == 0, result.output
        with Image.open(tmp_path / "g.png") as picture:
            assert picture.width > 300
    result = run("export", model, "-o", tmp_path / "m.onnx")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fit", "{}/test/down"], 1, "must have a folder of images for each class"),
        (["fit", "{}/train", "-t", "label"], 2, "its folders are the labels"),
        (["fit", "{}/train", "--task", "regression"], 2, "images have classes"),
        (["fit", "{}/train", "--set", "widht=3"], 2, "Did you mean widths"),
        (["fit", "{}/nothing.csv"], 2, "--target COLUMN"),
        (["predict", "{}/m.cofrnet", "{}/m.cofrnet"], 1, "it is of no kind that is known"),
        (["predict", "{}/m.cofrnet", "{}/nowhere"], 1, "there is none"),
        (["predict", "{}/m.cofrnet", "{}/test", "--keep", "id"], 2, "--keep is for tables"),
        (["explain", "global", "{}/m.cofrnet"], 1, "one by one"),
        (["formula", "{}/m.cofrnet"], 1, "no formula to read"),
        (["plot", "{}/m.cofrnet"], 2, "name DATA"),
    ],
)
@pytest.mark.usefixtures("model")
def test_wrong_use_is_told(run, folder, tmp_path, arguments, code, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*(argument.format(folder) for argument in arguments))
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


@in_a_browser
def test_the_page_shows_images_and_what_pixels_do(opened, tmp_path):  # noqa: F811
    X, y = lines(80)
    labels = np.where(y == "down", HOSTILE[2], "across")
    model = CoFrNetImageClassifier(**SMALL).fit(X, labels)
    path = model.report(tmp_path / "r.html", X[:60], labels[:60])
    assert path.stat().st_size < 1_000_000
    page = opened(path)
    tiles = page.locator(".tile")
    assert tiles.count() == 48
    tiles.nth(5).click()
    place = int(tiles.nth(5).get_attribute("data-place"))
    data = json.loads(page.locator("#data").text_content())
    row = data["images"]["index"][place]
    assert f"image {row}:" in page.locator("#image-title").text_content()
    expected = model.explain_local(X[row : row + 1])
    assert data["images"]["scores"][place][0] == pytest.approx(expected.scores[0, 0], abs=1e-4)
    painted = page.evaluate(
        "() => { const c = document.getElementById('image-why'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return [c.width, c.height, Array.from(d)]; }"
    )
    assert painted[:2] == [12, 12]
    pixels = np.array(painted[2]).reshape(12, 12, 4)
    strongest = np.unravel_index(np.abs(expected.values[0, 0]).argmax(), (12, 12))
    redder = pixels[strongest][0] > pixels[strongest][2]
    assert redder == (expected.values[0, 0][strongest] > 0)
    page.fill("#find-image", "across")
    assert 0 < page.locator(".tile").count() < 48
    assert page.complaints == []
    assert len(page.requests) == 1
    assert page.evaluate("window.hacked") is None
