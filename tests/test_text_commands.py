"""Texts on the command line and in the page, in a real browser."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cofrnet
from cofrnet import CoFrNetTextClassifier, plot
from cofrnet.cli import app
from tests.test_report import HOSTILE, browser, in_a_browser, opened  # noqa: F401
from tests.test_text import reviews


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    X, y = reviews(300)
    path = tmp_path_factory.mktemp("texts") / "reviews.csv"
    frame = pd.DataFrame({"id": range(300), "said": X, "label": y})
    frame.loc[3, "said"] = None
    frame.to_csv(path, index=False)
    frame.to_parquet(path.with_suffix(".parquet"))
    return path


@pytest.fixture(scope="module")
def model(data):
    path = data.with_suffix(".cofrnet")
    result = CliRunner().invoke(app, ["fit", str(data), "--text", "said", "-t", "label", "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "300 texts in column 'said'" in result.stdout
    assert "1 empty" in result.stdout
    assert "not read: 'id'" in result.stdout
    return path


def test_fit_for_machines(run, data, tmp_path):
    out = tmp_path / "m.cofrnet"
    result = run(
        "fit", data.with_suffix(".parquet"), "--text", "said", "-t", "label", "-o", out, "--test", "0.2", "--json"
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["test"]["accuracy"]["value"] > 0.8
    assert cofrnet.load(out).text_name_ == "said"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--text", "words", "-t", "label"], 1, "must have a column 'words'"),
        (["--text", "said", "-t", "said"], 1, "must be different columns"),
        (["--text", "said", "-t", "label", "--task", "regression"], 2, "texts are classified"),
        (["--text", "said", "-t", "id"], 1, "must hold classes"),
        (["--text", "said", "-t", "label", "--set", "depht=3"], 2, "Did you mean depth"),
        (["--text", "said", "-t", "label", "--variant", "S"], 1, "variant must be one of auto, F"),
    ],
)
def test_wrong_use_is_told(run, data, tmp_path, arguments, code, said):
    result = run("fit", data, "-o", tmp_path / "m.cofrnet", *arguments)
    assert result.exit_code == code
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "m.cofrnet").exists()


def test_predictions_are_those_of_the_model(run, data, model, tmp_path):
    frame = pd.read_csv(data)
    expected = cofrnet.load(model).predict_proba(frame["said"])[:, 1]
    for source in (data, data.with_suffix(".parquet")):
        result = run("predict", model, source, "--keep", "id", "-o", tmp_path / "out.parquet")
        assert result.exit_code == 0, result.output
        found = pd.read_parquet(tmp_path / "out.parquet")
        np.testing.assert_allclose(found["probability_good"], expected, atol=1e-6)
        assert found["id"].astype(int).tolist() == list(range(300))
    result = run("evaluate", model, data, "--json")
    assert json.loads(result.stdout)["metrics"]


def test_explanations_are_printed_and_written(run, data, model, tmp_path):
    result = run("explain", "local", model, data, "--rows", "0-2")
    assert result.exit_code == 0, result.output
    assert "row 1, good: score" in result.stdout
    result = run("explain", "local", model, data, "--rows", "5", "--json")
    told = json.loads(result.stdout)
    total = np.sum(told["values"][0]) + told["base_values"][0]
    assert total == pytest.approx(told["scores"][0][0], abs=1e-4)
    result = run("explain", "local", model, data, "-o", tmp_path / "words.csv")
    assert set(pd.read_csv(tmp_path / "words.csv").columns) >= {"row", "word", "adds"}
    assert "lovely" in run("explain", "global", model).stdout
    assert run("explain", "local", model, data, "--method", "gradient").exit_code == 2
    assert "words" in run("info", model).stdout
    assert json.loads(run("info", model, "--json").stdout)["columns"][0]["kind"] == "text"


def test_terminals_are_not_moved_by_texts(run, model, tmp_path):
    pd.DataFrame({"said": ["lovely \x1b[31mred\x1b[2J \x07"]}).to_csv(tmp_path / "x.csv", index=False)
    assert "\x1b[2J" not in run("explain", "local", model, tmp_path / "x.csv").stdout


@pytest.mark.parametrize("options", [[], ["--cloud"], ["--row", "2"]])
def test_plots(run, data, model, tmp_path, options):
    result = run("plot", model, data, "-o", tmp_path / "p.png", *options)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.png").stat().st_size > 5000
    assert run("plot", model, data, "--feature", "x").exit_code == 2


def test_text_of_dollars_is_not_mathematics():
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(*reviews(60))
    axes = plot.text(model.explain_local(["$x^2$ lovely \n\n new $line$ " + "word " * 400]))
    axes.figure.canvas.draw()


def test_what_texts_do_not_have_is_said(run, model, data, tmp_path):
    result = run("formula", model)
    assert (result.exit_code, "no formula" in result.output) == (1, True)
    assert run("export", model, "-o", tmp_path / "m.onnx").exit_code == 0
    assert run("export", model, "-f", "torch", "-o", tmp_path / "m.pt2").exit_code == 0


# ------------------------------------------------------------------------------------------ the page


def scores_in(page, texts):
    return np.array(page.evaluate("texts => texts.map((text) => window.scoreText(text).scores)", texts))


STRANGE = [
    "",
    "It’s LOVELY!! <br/> not dreadful?",
    "它很好 ไทย हिन्दी",
    "e\u0301te\u0301 İstanbul",
    "😀 lovely <b",
    "<script>x",
]


@in_a_browser
@pytest.mark.parametrize("settings", [{}, {"n_members": 2}, {"pole": "clamp"}, {"input": "tfidf", "n_ladders": 4}])
def test_typed_texts_score_as_in_python(opened, tmp_path, settings):  # noqa: F811
    X, y = reviews(200)
    model = CoFrNetTextClassifier(max_epochs=2, random_state=0, **settings).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", X, y))
    texts = [*X[:20], *STRANGE]
    np.testing.assert_allclose(scores_in(page, texts)[:, 0], model.decision_function(texts), atol=1e-4)
    explanation = model.explain_local(texts)
    if settings.get("pole") != "clamp":  # whose jumps need secants
        for i, text in enumerate(texts):
            pieces = page.evaluate("text => window.scoreText(text).pieces", text)
            found = [own[0] for piece, own in pieces if own is not None]
            np.testing.assert_allclose(found, explanation.values[i][:, 0], atol=1e-4)
    page.fill("#typed", "a splendid, splendid day")
    assert "good" in page.inner_text("#answer")
    assert page.inner_text("#typed-words") == "a splendid, splendid day"
    page.fill("#typed", "")
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("file:")] == []


@in_a_browser
def test_several_classes_and_rounded_numbers(opened, tmp_path, monkeypatch):  # noqa: F811
    X, y = reviews(200)
    labels = np.where(np.arange(200) % 3 == 0, "neither", y)
    model = CoFrNetTextClassifier(max_epochs=2, random_state=0).fit(X, labels)
    for most, tolerance in ((6_000_000, 2e-3), (20_000, 0.2)):
        monkeypatch.setattr("cofrnet.report.texts.EXACT_BYTES", 10)
        monkeypatch.setattr("cofrnet.report.texts.MOST_BYTES", most)
        page = opened(model.report(tmp_path / "page.html", X, labels))
        np.testing.assert_allclose(scores_in(page, X[:20]), model.decision_function(X[:20]), atol=tolerance)
        assert "rounded" in page.inner_text("#try")
        page.select_option("#output", "2")
        page.fill("#find-word", "lovely")
        assert "lovely" in page.inner_text("#words-table")
        assert page.complaints == []


@in_a_browser
def test_hostile_texts_stay_texts(opened, tmp_path):  # noqa: F811
    X = [f"{hostile} lovely" for hostile in HOSTILE] * 4 + [f"{hostile} dreadful" for hostile in HOSTILE] * 4
    labels = ["<b onclick=alert(1)>a</b>"] * (len(X) // 2) + ["</script><script>window.hacked = 1</script>"] * (
        len(X) // 2
    )
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(
        pd.Series(X, name="<i>x</i>"), pd.Series(labels, name=HOSTILE[0])
    )
    page = opened(model.report(tmp_path / "page.html", X, labels, title=HOSTILE[2]))
    for i in range(4):
        page.click(f"#texts-table tbody tr:nth-child({i + 1})")
    page.fill("#typed", HOSTILE[1])
    page.click("#text-try")
    page.fill("#find-text", "lovely")
    assert page.evaluate("window.hacked") is None
    assert page.complaints == []


@in_a_browser
def test_texts_can_be_browsed_by_keyboard(opened, tmp_path):  # noqa: F811
    X, y = reviews(120)
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", X, y), viewport={"width": 390, "height": 800})
    page.focus("#texts-table tbody tr:nth-child(3)")
    page.keyboard.press("Enter")
    chosen = page.inner_text("#texts-table tr.chosen td:first-child")
    assert f"Row {chosen}:" in page.inner_text("#text-title")
    page.click("#texts-table th:nth-child(1) button")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("#theme")
    assert page.complaints == []


def test_pages_without_the_live_box_say_why(tmp_path):
    X, y = reviews(60)
    own = CoFrNetTextClassifier(tokenizer=str.split, max_epochs=1, random_state=0).fit(X, y)
    assert "The live box needs" in own.report(tmp_path / "a.html").read_text()
    with pytest.raises(ValueError, match="y must come with its texts"):
        own.report(tmp_path / "a.html", y=y)
    with pytest.raises(ValueError, match="as many rows"):
        own.report(tmp_path / "a.html", X, y[:-1])


def test_rare_classes_are_learnt_before_they_are_asked_for(run, tmp_path):
    X, y = reviews(120)
    frame = pd.DataFrame({"said": X, "label": y})
    frame.loc[:1, "label"] = ["one of a kind", "another"]
    frame.to_csv(tmp_path / "x.csv", index=False)
    result = run("fit", tmp_path / "x.csv", "--text", "said", "-t", "label", "-o", tmp_path / "m", "--test", "0.5")
    assert result.exit_code == 0, result.output


def test_numbers_can_be_texts(run, tmp_path):
    pd.DataFrame({"code": [11, 22] * 30, "label": ["a", "b"] * 30}).to_parquet(tmp_path / "x.parquet")
    assert run("fit", tmp_path / "x.parquet", "--text", "code", "-t", "label", "-o", tmp_path / "m").exit_code == 0
    result = run("predict", tmp_path / "m", tmp_path / "x.parquet", "-o", tmp_path / "o.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "o.csv")["prediction"].tolist() == ["a", "b"] * 30
    result = run("fit", tmp_path / "x.parquet", "--text", "code", "-t", "label", "--drop", "x")
    assert result.exit_code == 2


@in_a_browser
def test_long_texts_do_not_stop_the_page(opened, tmp_path):  # noqa: F811
    X, y = reviews(60)
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", [*X, "lovely day " * 40_000], [*y, "good"]))
    page.fill("#typed", "lovely day " * 30_000)
    assert "good" in page.inner_text("#answer")
    assert page.complaints == []


def test_empty_lines_of_one_column_are_texts(run, model, tmp_path):
    (tmp_path / "x.csv").write_text("said\nlovely\n\nlast\n")
    result = run("predict", model, tmp_path / "x.csv", "-o", tmp_path / "o.csv")
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "o.csv")) == 3


def test_the_name_says_what_is_exported(run, model, tmp_path):
    assert run("export", model, "-o", tmp_path / "m.pt2").exit_code == 0
    assert (tmp_path / "m.pt2").read_bytes()[:2] == b"PK"
    assert run("export", model, "-o", tmp_path / "m.py").exit_code == 2
