"""Formulas and programs: each is run, by its own language, on real rows, and must give the estimator's scores."""

import json
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sympy

from cofrnet import CoFrNetClassifier, CoFrNetRegressor

FAST = {"max_epochs": 4, "n_ladders": 3, "ladders_per_feature": 2, "max_categories": 8, "random_state": 0}


def table(n=1200):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age of person": rng.integers(18, 80, n).astype(float),
            "income": np.exp(rng.normal(10, 1, n)),
            "city": rng.choice(["Bern", 'Os"lo', "St. John's", "rare?"], n, p=[0.5, 0.3, 0.19, 0.01]),
            "member": rng.random(n) > 0.5,
            "constant": 1.0,
            "shop": rng.choice(np.arange(60) * 7.5, n),
            "street": rng.choice([f"{i} O'Hara Rd" for i in range(30)], n),
            "rooms": rng.choice([1, 2, 2.5, 4, 9], n, p=[0.3, 0.3, 0.2, 0.195, 0.005]),
        }
    )
    frame.loc[rng.random(n) < 0.1, "rooms"] = np.nan
    frame.loc[rng.random(n) < 0.1, "age of person"] = np.nan
    frame.loc[rng.random(n) < 0.05, "city"] = None
    frame.loc[rng.random(n) < 0.05, ["shop", "street"]] = np.nan, None
    y = frame["age of person"].fillna(30) + 5 * np.log(frame["income"]) + 40 * (frame["city"] == "Bern")
    shops, streets = rng.choice([-80, 80], 60), rng.choice([-80, 80], 30)
    y += np.where(frame["shop"].isna(), 0, shops[(frame["shop"].fillna(0) / 7.5).astype(int)])
    y += [0 if pd.isna(name) else streets[int(name.split()[0])] for name in frame["street"]]
    return frame, (y + 100 * (frame["rooms"] == 2)).to_numpy()


MODELS = {
    "regression": lambda X, y: CoFrNetRegressor(**FAST).fit(X, y),
    "two classes": lambda X, y: CoFrNetClassifier(**FAST).fit(X, y > np.median(y)),
    "three classes": lambda X, y: CoFrNetClassifier(**FAST).fit(X, pd.qcut(y, 3, labels=["a", "b", "c"])),
    "members": lambda X, y: CoFrNetRegressor(**FAST, n_members=2).fit(X, y),
    "DL, clamp, standard": lambda X, y: CoFrNetRegressor(**FAST, variant="DL", pole="clamp", scaling="standard").fit(
        X, y
    ),
    "pairs": lambda X, y: CoFrNetRegressor(**FAST, variant="D", interactions=[("income", "city")]).fit(X, y),
    "F": lambda X, y: CoFrNetRegressor(**FAST, variant="F").fit(X, y),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    X, y = table()
    model = MODELS[request.param](X, y)
    assert bool(model.encoder_.columns[-1].hats) == (model.scaling == "quantile"), "the programs are to know of hats"
    assert [column.name for column in model.encoder_.columns if column.effects] == ["shop", "street"]
    return model, X


@pytest.fixture(scope="module")
def rows():
    """Rows as they were, and some beyond the range, with levels never seen."""
    X, _ = table()
    odd = X.iloc[:4].copy()
    odd["income"] = [0.0, 1e9, -5.0, X["income"].max()]
    odd["city"] = ["Paris", None, "Bern", "rare?"]
    odd["rooms"] = [1.25, 3.0, -1.0, 100.0]
    odd["shop"], odd["street"] = [3.1, -4.0, 1e6, np.nan], ["nowhere", "other", "missing", None]
    return pd.concat([X.iloc[:60], odd], ignore_index=True)


def expected_of(model, X):
    scores = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    return scores.reshape(len(X), -1)


def assert_same(found, model, X):
    expected = expected_of(model, X)
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(expected).max()))


def records(X):
    found = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in X.to_dict("records")]
    for row in found[1::2]:  # true may be given as 1
        row |= {"member": int(row["member"])} if "member" in row else {}
    return found


def test_python(fitted, rows):
    model, _ = fitted
    space = {}
    exec(model.to_code("python"), space)
    assert_same([space["score"](row) for row in records(rows)], model, rows)


def test_javascript(fitted, rows, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    model, _ = fitted
    (tmp_path / "model.js").write_text(model.to_code("javascript", "rate"))
    (tmp_path / "rows.json").write_text(json.dumps(records(rows)))
    program = "const {rate} = require('./model.js'); console.log(JSON.stringify(require('./rows.json').map(rate)))"
    out = subprocess.run([node, "-e", program], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert_same(json.loads(out), model, rows)


def test_c(fitted, rows, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    model, _ = fitted

    def text(value):
        return "NULL" if value is None else json.dumps(str(value))

    numeric = [hasattr(column, "knots") for column in model.encoder_.columns]
    q = expected_of(model, rows).shape[1]
    calls = []
    for row in records(rows):
        values = list(row.values())
        numbers = ",".join(
            "NAN" if not n or v is None else repr(float(v)) for n, v in zip(numeric, values, strict=True)
        )
        texts = ",".join("NULL" if n else text(v) for n, v in zip(numeric, values, strict=True))
        calls.append(
            f"{{ const double n[] = {{{numbers}}}; const char *const t[] = {{{texts}}}; score(n, t, s); "
            f'for (int q = 0; q < {q}; q++) printf("%.17g ", s[q]); printf("\\n"); }}'
        )
    program = model.to_code("c") + "#include <stdio.h>\nint main(void) { double s[9];\n" + "\n".join(calls) + "\n}\n"
    (tmp_path / "model.c").write_text(program)
    build = [compiler, "-std=c99", "-O1", "-Wall", "-Werror", "model.c", "-lm", "-o", "model"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    out = subprocess.run([tmp_path / "model"], capture_output=True, text=True, check=True).stdout
    assert_same([[float(v) for v in line.split()] for line in out.splitlines()], model, rows)


def test_sqlite(fitted, rows):
    model, _ = fitted
    connection = sqlite3.connect(":memory:")
    rows.assign(member=rows["member"].astype(int)).to_sql("people", connection, index=False)
    cursor = connection.execute(model.to_code("sql", "people"))
    names = [column[0] for column in cursor.description]
    first = len(rows.columns)
    assert names[:first] == list(rows.columns)
    assert all(name.startswith("score_") for name in names[first:])
    assert_same([row[first:] for row in cursor.fetchall()], model, rows)


def test_duckdb(fitted, rows):
    duckdb = pytest.importorskip("duckdb")
    model, _ = fitted
    connection = duckdb.connect()
    connection.register("people", rows.assign(city=rows["city"].astype(object).where(rows["city"].notna(), None)))
    connection.execute("CREATE TABLE clients AS SELECT row_number() OVER () AS place, * FROM people")
    connection.execute('UPDATE clients SET "age of person" = NULL WHERE isnan("age of person")')
    query = model.to_code("sql", "clients")
    found = connection.execute(query).fetchall()
    assert_same([row[len(rows.columns) :] for row in found], model, rows)


def test_sympy_is_the_score(fitted, rows):
    model, _ = fitted
    expressions = model.to_sympy()
    expressions = expressions if isinstance(expressions, list) else [expressions]
    plan = model.plan()
    x = model.encoder_.encode(model._read(rows, reset=False), np.float64)[:5]
    columns = {name: x[:, i] for i, name in enumerate(plan.input_names)}
    symbols = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    evaluate = sympy.lambdify(symbols, expressions, "math")
    gaps = rows[["age of person", "rooms"]].isna().any(axis=1).to_numpy()
    for i in range(5):
        at = {}
        for symbol in symbols:
            name = symbol.name
            if name.startswith("z("):
                at[symbol] = columns[name[2:-1]][i]
            else:
                at[symbol] = columns[name][i] if name not in rows or "=" in name else rows[name].fillna(0).iloc[i]
        if plan.columns[0].bounded or not gaps[i]:
            found = evaluate(*(at[symbol] for symbol in symbols))
            np.testing.assert_allclose(found, expected_of(model, rows.iloc[[i]])[0], rtol=1e-4, atol=1e-4)


def test_a_column_named_as_a_level_of_another_is_another_symbol():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.choice(["1", "2"], 200), "a=1": rng.normal(size=200)})
    model = CoFrNetRegressor(variant="D", max_epochs=2, random_state=0).fit(X, X["a=1"] + (X["a"] == "1"))
    assert model.plan().input_names == ("a=1'", "a=2", "a=1")
    assert {symbol.name for symbol in model.to_sympy().free_symbols} == {"a=1'", "a=2", "z(a=1)"}


def test_sympy_of_a_model_of_default_size_takes_no_minutes():
    """SymPy's search for signs in its powers and products would take hundreds of times as many steps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = CoFrNetRegressor(n_members=1, max_epochs=1, random_state=0).fit(X, X[:, 0])
    steps = 0

    def count(*_):
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        model.to_sympy()
    finally:
        sys.setprofile(before)
    assert 0 < steps < 5_000_000


def small(**settings):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": rng.uniform(1, 2, 300), "v": rng.uniform(1, 2, 300)})
    options = {"variant": "F", "n_ladders": 1, "depth": 2, "pole": "clamp", "scaling": "minmax", "max_epochs": 3}
    model = CoFrNetRegressor(**{**options, **settings}, solver="adamw", early_stopping=False, random_state=0)
    return model.fit(X, X["u"] / X["v"]), X  # the last weights are kept: those of the start have no ladder in them


@pytest.mark.parametrize("form", ["rational", "expanded", "factored"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
def test_one_rational_function_is_the_model(form, pole):
    model, _ = small(pole=pole, depth=1)
    nested, whole = model.to_sympy(exact=True), model.to_sympy(form, exact=True)
    above, below = sympy.fraction(whole)
    assert sympy.Poly(above, *sorted(above.free_symbols, key=str)).total_degree() >= 1
    assert below.free_symbols
    at = {sympy.Symbol("u", real=True): sympy.Rational(3, 2), sympy.Symbol("v", real=True): sympy.Rational(5, 4)}
    assert sympy.nsimplify(nested.subs(at) - whole.subs(at)) == 0
    assert float(whole.subs(at)) == pytest.approx(model.predict(pd.DataFrame({"u": [1.5], "v": [1.25]}))[0], rel=1e-4)


def test_latex_is_a_nested_fraction():
    model, _ = small()
    text = model.to_latex()
    assert text.count("\\cfrac") == 2
    assert text.count("{") == text.count("}")
    assert "\\begin{aligned}" in text
    assert "standing for" not in text
    assert "standing for" in small(pole="smooth")[0].to_latex()
    assert "\\frac" in small(depth=1)[0].to_latex("rational")


def test_impossible_formulas_are_refused():
    model, _ = small()
    with pytest.raises(ValueError, match="language must be one of"):
        model.to_code("cobol")
    with pytest.raises(ValueError, match="name must be an identifier"):
        model.to_code("sql", "people; DROP TABLE x")
    with pytest.raises(ValueError, match="form must be"):
        model.to_sympy("simple")
    large, _ = small(n_ladders=21)
    with pytest.raises(ValueError, match="at most 40 reciprocals"):
        large.to_sympy("rational")


TAKEN = {
    "python": ["_inputs", "_reciprocal", "sum", "zip", "len", "list", "class", "match", "MODEL"],
    "c": ["column_of", "knot_value", "INPUTS", "strcmp", "strange", "exp", "int", "main", "reads"],
    "javascript": ["MODEL", "modelInputs", "Map", "class", "module"],
    "sql": ["select", "Order", "table", "s0"],
}
FREE = {
    "python": ["score", "model", "predict", "scale"],
    "c": ["score", "model", "risk"],
    "javascript": ["score", "model", "risk"],
    "sql": ["people", "scale", "level", "offset", "head", "reads", "MODEL"],
}


@pytest.mark.parametrize("language", list(TAKEN))
def test_names_that_mean_something_else_are_refused(language):
    model, frame = small()
    for name in TAKEN[language]:
        with pytest.raises(ValueError, match=f"name must not mean something else.*got name='{name}'"):
            model.to_code(language, name)
    for name in FREE[language]:
        program = model.to_code(language, name)
        if language == "python":
            space = {}
            exec(program, space)
            row = frame.iloc[0].to_dict()
            assert space[name](row)[0] == pytest.approx(model.predict(frame.iloc[:1])[0], rel=1e-4)
        if language == "sql":
            np.testing.assert_allclose(in_sqlite(model, frame, name), model.predict(frame), rtol=1e-4)


def in_sqlite(model, frame, name="people"):
    connection = sqlite3.connect(":memory:")
    frame.to_sql(name, connection, index=False)
    return [row[-1] for row in connection.execute(model.to_code("sql", name))]


def test_names_of_columns_do_not_collide_with_our_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    model = CoFrNetRegressor(**FAST).fit(X, X[:, 0] * X[:, 1])
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    np.testing.assert_allclose(in_sqlite(model, frame), model.predict(X), rtol=1e-5, atol=1e-5)
    odd = frame.rename(columns={"x0": "cx0", "x1": "c_m0l0", "x2": "Score"})
    model = CoFrNetRegressor(**FAST).fit(odd, X[:, 0] * X[:, 1])
    np.testing.assert_allclose(in_sqlite(model, odd), model.predict(odd), rtol=1e-5, atol=1e-5)


def test_categories_that_are_whole_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.choice([1.0, 2.0, 3.0, np.nan], 300), "u": rng.normal(size=300)})
    model = CoFrNetRegressor(**FAST, categorical_features=["code"]).fit(frame, 10 * frame["code"].fillna(0))
    np.testing.assert_allclose(in_sqlite(model, frame), model.predict(frame), rtol=1e-5, atol=1e-4)
    space = {}
    exec(model.to_code("python"), space)
    assert_same([space["score"](row) for row in records(frame)], model, frame)


@pytest.mark.parametrize(
    "name", ["yes\nraise SystemExit #", "a\rraise SystemExit", "*/ int x; /*", "\u2028boom()", "a\\"]
)
def test_names_of_classes_are_not_run(name, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1))
    model = CoFrNetClassifier(**FAST).fit(X, np.where(X[:, 0] > 0, name, "no"))
    space = {}
    exec(model.to_code("python"), space)
    assert space["score"]({"x0": 0.5})[0] == pytest.approx(model.decision_function([[0.5]])[0], abs=1e-5)
    if shutil.which("gcc"):
        (tmp_path / "m.c").write_text(model.to_code("c"))
        subprocess.run(["gcc", "-std=c99", "-fsyntax-only", "-Wall", "-Werror", "m.c"], cwd=tmp_path, check=True)
    assert len(in_sqlite(model, pd.DataFrame({"x0": X[:, 0]}))) == 100


def test_models_in_double_precision_keep_their_digits():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": rng.uniform(1, 2, 200)})
    model = CoFrNetRegressor(variant="F", n_ladders=1, depth=1, solver="least_squares", random_state=0).fit(
        X, X["u"] ** 2
    )
    space = {}
    exec(model.to_code("python"), space)
    found = [space["score"](row)[0] for row in records(X)]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)


def test_latex_has_the_offset():
    X = np.linspace(0, 1, 50)[:, None]
    assert "5 + " in CoFrNetRegressor(**FAST).fit(X, np.full(50, 5.0)).to_latex()
