"""The page, in a real browser: no errors, what it computes is what Python computes, and data stays data."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cofrnet import CoFrNetClassifier, CoFrNetRegressor, report
from tests.test_export import FAST, table

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium")

HOSTILE = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</script><script>window.hacked = 1</script>",
    "<!--<script>",
    "__proto__",
    "constructor",
    "'; window.hacked = 1; //",
    "${window.hacked = 1}",
    '<a href="javascript:window.hacked = 1">click</a>',
    "{{ 7 * 7 }}",
    "日本語 عربى",
    " ",
]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def opened(browser):
    """A function that opens a page and fails on anything it complains of or asks the network for."""
    contexts = []

    def open_page(path, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on(
            "console", lambda said: page.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(Path(path).as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=20_000)
        page.wait_for_function("!document.getElementById('features') || window.whatIf !== undefined")
        return page

    yield open_page
    for context in contexts:
        context.close()


def scroll_through(page):
    height = page.evaluate("document.body.scrollHeight")
    for y in range(0, height, 500):
        page.evaluate(f"window.scrollTo(0, {y})")
        page.wait_for_timeout(60)
    page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every((p) => p.classList.contains('js-plotly-plot'))"
    )


MODELS = {
    "two classes": lambda X, y: (CoFrNetClassifier(**FAST), np.where(y > np.median(y), "high", "low")),
    "three classes": lambda X, y: (
        CoFrNetClassifier(**FAST, n_members=2),
        pd.qcut(y, 3, labels=["a", "b", "c"]).astype(str),
    ),
    "regression, pairs": lambda X, y: (CoFrNetRegressor(**FAST, interactions=[("income", "city")]), y),
    "clamp": lambda X, y: (CoFrNetRegressor(**FAST, variant="DL", pole="clamp"), y),
}


def fitted_and_page(name, tmp_path):
    X, y = table()
    X["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)) * 7 % 900, unit="D")
    model, target = MODELS[name](X, y)
    model.fit(X, pd.Series(target, name="answer"))
    return model, X, model.report(tmp_path / "page.html", X, target)


@in_a_browser
@pytest.mark.parametrize("name", MODELS)
def test_what_if_is_what_python_says(tmp_path, opened, name):
    model, X, path = fitted_and_page(name, tmp_path)
    page = opened(path)
    order = model.explain_global(X).order
    names = [model.encoder_.columns[j].name for j in order]
    changes = [
        {"age of person": 61, "income": 12345.5, "city": "Bern", "member": "True", "since": "2021-03-04", "rooms": 2.5}
        | {"shop": 30, "street": "3 O'Hara Rd"},
        {"age of person": None, "income": 80000, "city": "St. John's", "member": "False", "since": "2020-02-29"}
        | {"rooms": 3.2, "shop": 33.1, "street": "29 O'Hara Rd"},
    ]
    for change in changes:
        for feature, value in change.items():
            j = names.index(feature)
            if isinstance(value, str) and feature != "since":
                page.select_option(f"#feature-{j}", label=value)
            elif value is None:
                page.check(f"#feature-{j}-missing")
            else:
                page.fill(f"#feature-{j} + input", str(value))
        page.wait_for_timeout(100)
        found = page.evaluate("window.whatIf")
        row = X.iloc[:1].assign(**{k: v for k, v in change.items() if k not in ("member", "since")})
        row["member"] = change["member"] == "True"
        row["since"] = pd.Timestamp(change["since"])
        row["age of person"] = row["age of person"].astype(float)
        wanted = model.explain_local(row)
        scale = 1.0 if hasattr(model, "classes_") else float(model.target_scale_[0])
        np.testing.assert_allclose(np.array(found["scores"]) / scale, wanted.scores[0] / scale, atol=1e-4)
        np.testing.assert_allclose(
            np.array(found["contributions"]) / scale, wanted.values[0][:, order] / scale, atol=1e-4
        )
        if found["probabilities"] is not None:
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(row)[0], atol=1e-4)
            own = model.predict_proba(row)[0]  # of several classes that of the most probable one
            said = own[1] if len(own) == 2 else own.max()
            assert f"{100 * said:.1f} %" in page.inner_text("#answer")
    assert page.complaints == []


@in_a_browser
def test_a_level_called_missing_is_not_missing(tmp_path, opened):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c": rng.choice(np.array(["missing", "a", None], dtype=object), 300), "x": rng.normal(size=300)})
    y = 3 * (X["c"] == "missing") - 3 * X["c"].isna()
    model = CoFrNetRegressor(**FAST).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", X, y))
    for value in ("missing", None, "a"):
        page.evaluate("row => startFrom(data.features.map((own) => row[own.name]))", {"c": value, "x": 0.5})
        page.wait_for_timeout(100)
        wanted = model.predict(pd.DataFrame({"c": np.array([value], dtype=object), "x": [0.5]}))[0]
        assert page.evaluate("window.whatIf.scores[0]") == pytest.approx(wanted, abs=1e-3)


@in_a_browser
def test_small_changes_of_large_numbers_are_seen(tmp_path, opened):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300)})
    y = 1e9 + 0.01 * X["a"]
    model = CoFrNetRegressor(**FAST).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", X, y))
    points = np.array(page.evaluate("data.quality.points"))
    assert np.corrcoef(points[:, 0, 0], y)[0, 1] > 0.9
    seen = {page.locator(f"#rows-table tbody tr:nth-child({i}) td:nth-child(3)").inner_text() for i in range(1, 21)}
    assert len(seen) > 10
    assert abs(float(page.inner_text("#answer .big")) - 1e9) < 0.1
    row = model.explain_local(X[:1])
    told = [float(line.split()[-1]) for line in str(row).splitlines() if "score 1" in line or line.startswith("  base")]
    assert told == pytest.approx([row.scores[0, 0], row.base_values[0]], abs=1e-4, rel=0)


@in_a_browser
def test_a_slider_moves_the_prediction(tmp_path, opened):
    model, X, path = fitted_and_page("regression, pairs", tmp_path)
    page = opened(path)
    names = [model.encoder_.columns[j].name for j in model.explain_global(X).order]
    slider = page.locator(f"#feature-{names.index('age of person')}")
    before = page.evaluate("window.whatIf.scores[0]"), page.inner_text("#answer")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")  # the keyboard is enough
    page.wait_for_timeout(100)
    moved = float(slider.input_value())
    row = {}
    for j, name in enumerate(names):
        row[name] = page.evaluate(f"JSON.parse(document.getElementById('data').textContent).features[{j}].start")
    row["age of person"] = moved
    frame = pd.DataFrame([row])[X.columns.tolist()]
    frame["member"] = frame["member"] == "True"
    frame["since"] = pd.Timestamp("1970-01-01") + pd.to_timedelta(frame["since"], unit="D")
    assert page.evaluate("window.whatIf.scores[0]") == pytest.approx(model.predict(frame)[0], abs=1e-3)
    assert (page.evaluate("window.whatIf.scores[0]"), page.inner_text("#answer")) != before
    page.click("#reset")
    page.wait_for_timeout(100)
    assert page.evaluate("window.whatIf.scores[0]") == pytest.approx(before[0])


@in_a_browser
@pytest.mark.parametrize("name", ["three classes", "regression, pairs"])
def test_everything_is_drawn_without_a_complaint(tmp_path, opened, name):
    _, X, path = fitted_and_page(name, tmp_path)
    page = opened(path)
    scroll_through(page)
    if name == "three classes":
        page.select_option("#output", "2")
        page.wait_for_timeout(200)
        assert "probability of c" in page.inner_text("#answer")
    page.click("#theme")
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelectorAll('#curve-charts figure').length") == X.shape[1]
    assert page.locator("#rows-table tbody tr").count() == 300
    page.fill("#find-row", "city = bern")
    shown = page.locator("#rows-table tbody tr").count()
    assert 0 < shown < 300
    page.fill("#find-row", "age of person > 60")
    page.click("#rows-table th:has-text('age of person') button")
    first = page.inner_text("#rows-table tbody tr:first-child")
    assert "79" in first or "78" in first
    page.click("#rows-table tbody tr:nth-child(2) button")
    assert "Why, row" in page.inner_text("#row-title")
    chosen = page.inner_text("#rows-table tbody tr.chosen td:first-child")
    page.click("#row-try")
    page.wait_for_timeout(150)
    at = page.evaluate(
        f"(() => {{ const r = JSON.parse(document.getElementById('data').textContent).rows;"
        f" return r.scores[r.index.indexOf({chosen})][0]; }})()"
    )
    assert page.evaluate("window.whatIf.scores[0]") == pytest.approx(at, rel=1e-3, abs=1e-3)
    assert page.complaints == []
    assert page.requests == [path.as_uri()]


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_sticks_out(tmp_path, opened, scheme):
    _, _, path = fitted_and_page("two classes", tmp_path)
    page = opened(path, viewport={"width": 360, "height": 780}, is_mobile=True, has_touch=True, color_scheme=scheme)
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 200
    assert dark == (scheme == "dark")
    page.emulate_media(media="print")
    assert not page.is_visible("nav")
    assert page.complaints == []


@in_a_browser
def test_names_and_labels_are_data(tmp_path, opened):
    rng = np.random.default_rng(0)
    n = 200
    X = pd.DataFrame({name: rng.normal(size=n) for name in HOSTILE})
    X["levels"] = rng.choice([*HOSTILE, None], n)
    y = np.array(HOSTILE[:3])[(X[HOSTILE[0]] > 0).astype(int) + (X[HOSTILE[1]] > 0.5)]
    model = CoFrNetClassifier(**FAST).fit(X, pd.Series(y, name="<img src=x onerror='window.hacked=1'>"))
    path = model.report(tmp_path / "page.html", X, y)
    page = opened(path)
    scroll_through(page)
    page.select_option("#output", "1")
    page.fill("#find-row", "<script>")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#features .feature").count() == X.shape[1]
    titles = page.locator("#features .title").all_text_contents()
    assert sorted(titles) == sorted(X.columns)
    shown = page.evaluate("document.querySelector('#importances-table').textContent")
    assert HOSTILE[0] in shown
    assert page.locator("main a[href^=javascript]").count() == 0
    scores = page.evaluate("window.whatIf.scores")
    start = page.evaluate(
        "JSON.parse(document.getElementById('data').textContent).features.map((f) => [f.name, f.start])"
    )
    row = pd.DataFrame([dict(start)])[X.columns.tolist()]
    np.testing.assert_allclose(scores, model.decision_function(row)[0], atol=1e-4)
    assert page.complaints == []
    blocked = page.evaluate(
        "new Promise((done) => { const s = document.createElement('script'); s.textContent = 'window.hacked = 2';"
        " document.body.append(s); setTimeout(() => done(window.hacked), 100); })"
    )
    assert blocked is None  # the policy of the page lets no other script run


def test_the_page_is_whole_without_rows_and_says_what_it_left_out(tmp_path, monkeypatch):
    X, y = table()
    model = CoFrNetRegressor(**FAST).fit(X, y)
    text = model.report(tmp_path / "a.html", title="My <model>").read_text()
    assert "My &lt;model&gt;" in text
    assert "No rows with known targets were given" in text
    assert 'id="rows"' not in text
    assert "Content-Security-Policy" in text
    outside = re.findall(r"""(?:src|href)=["'](https?:[^"']*)""", text.split("<script")[0])
    assert outside == []
    monkeypatch.setattr(report, "MOST_PROGRAM", 10)
    assert "too large to be put into this page" in model.report(tmp_path / "b.html").read_text()
    with pytest.raises(ValueError, match="y must come with its rows"):
        model.report(tmp_path / "c.html", None, y)
    assert not (tmp_path / "c.html").exists()


def test_a_large_table_is_sampled_and_the_page_says_so(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 20))
    y = X[:, 0] * X[:, 1] > 0
    model = CoFrNetClassifier(max_epochs=1, random_state=0).fit(X, y)
    path = model.report(tmp_path / "page.html", X, y)
    assert path.stat().st_size < 10_000_000
    text = path.read_text()
    assert re.search(r"A sample of \d+ of 30,000 rows", text)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    losses = [loss for (loss,) in data["rows"]["loss"]]
    worst = -np.log(np.maximum(model.predict_proba(X)[np.arange(len(y)), y.astype(int)], 1e-15))
    assert max(losses) == pytest.approx(worst.max(), rel=1e-4)


@in_a_browser
def test_rows_that_training_has_not_seen_are_what_python_says(tmp_path, opened):
    """Unknown and missing levels, missing numbers, large offsets: each tried from the table of rows."""
    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {"a": rng.normal(size=n) + 101325, "c": rng.choice(["u", "v"], n), "g": rng.choice(["p", None], n)}
    )
    y = 1e6 + X["a"] - 101325 + 3 * (X["c"] == "u")
    model = CoFrNetRegressor(**FAST).fit(X, y)
    rows = pd.DataFrame(
        {"a": [101325.25, np.nan, 101324.5, 101326], "c": ["u", "v", "Z", None], "g": ["missing", "p", "Q", None]}
    )
    page = opened(model.report(tmp_path / "page.html", rows, np.full(4, 1e6)))
    for i in range(4):
        page.click(f"#rows-table button[aria-label='Why, row {i}']")
        page.click("#row-try")
        page.wait_for_timeout(100)
        assert page.evaluate("window.whatIf.scores[0]") == pytest.approx(model.predict(rows.iloc[[i]])[0], abs=1e-3)
    page.fill("#find-row", "a > 101325")
    assert page.locator("#rows-table tbody tr").count() == 2
    page.fill("#find-row", "a = missing")
    assert page.locator("#rows-table tbody tr").count() == 1
    assert page.complaints == []


@in_a_browser
def test_several_targets(tmp_path, opened):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    y = pd.DataFrame({"small": X["a"], "large": 1000 + X["b"]})
    model = CoFrNetRegressor(**FAST).fit(X, y)
    page = opened(model.report(tmp_path / "page.html", X, y))
    page.select_option("#output", "1")
    page.wait_for_timeout(150)
    row = int(page.inner_text("#rows-table tbody tr.chosen td:first-child"))
    said = page.inner_text("#row-text")
    assert float(re.search(r"actual: ([\d.]+)\.", said)[1]) == pytest.approx(y["large"][row], rel=1e-3)
    assert page.complaints == []


def test_polars_and_arrow_rows(tmp_path):
    import polars as pl
    import pyarrow as pa

    X, y = table(120)
    model = CoFrNetRegressor(**FAST).fit(X, y)
    for frame in (pl.from_pandas(X), pa.Table.from_pandas(X, preserve_index=False)):
        assert model.report(tmp_path / "a.html", frame, y).exists()
