"""ONNX and torch.export programs, run by their own runtimes, against the estimator."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from tests.test_export import FAST, table

# a fitted model, and whether it is exported with contributions
MODELS = {
    "text labels": (
        lambda X, y: CoFrNetClassifier(**FAST, n_members=2).fit(X, np.where(y > np.median(y), "up", "down")),
        True,
    ),
    "three classes, DL": (
        lambda X, y: CoFrNetClassifier(**FAST, variant="DL").fit(X, pd.qcut(y, 3, labels=False)),
        False,
    ),
    "regression, pairs": (
        lambda X, y: CoFrNetRegressor(**FAST, variant="D", interactions=[("income", "city")]).fit(X, y),
        True,
    ),
    "clamp, minmax": (
        lambda X, y: CoFrNetRegressor(**FAST, variant="F", pole="clamp", scaling="minmax").fit(X, y),
        True,
    ),
}


def rows(n=1200):
    """Rows as in training, and some that it has not seen: beyond the range, unknown levels, missing everywhere."""
    frame, y = table(n)
    strange = frame.iloc[:4].copy()
    strange["income"] = [0.0, 1e30, np.nan, -5.0]
    strange["city"] = ["Atlantis", None, "other", "missing"]
    strange["age of person"] = np.nan
    strange["rooms"] = [1.25, 3.0, -1.0, 100.0]
    strange["shop"], strange["street"] = [3.1, -4.0, 1e6, np.nan], ["nowhere", "other", "missing", None]
    return pd.concat([frame, strange], ignore_index=True), y


def feed(session, X):
    found = {}
    for given in session.get_inputs():
        column = X[given.name]
        if given.type == "tensor(string)":
            found[given.name] = np.array([["" if pd.isna(v) else str(v)] for v in column], dtype=object)
        else:
            found[given.name] = column.to_numpy(dtype=np.float64)[:, None]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_onnx_and_torch_give_what_the_estimator_gives(tmp_path, name):
    make, contributions = MODELS[name]
    X, y = rows()
    fitted = make(X.iloc[: len(y)], y)
    assert [column.name for column in fitted.encoder_.columns if column.effects] == ["shop", "street"]
    path = fitted.to_onnx(tmp_path / "m.onnx", contributions=contributions)
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, feed(session, X)), strict=True))
    classify = hasattr(fitted, "classes_")
    assert names == (["label", "probabilities"] if classify else ["prediction"]) + ["contributions"] * contributions
    wanted = fitted.predict_proba(X) if classify else fitted.predict(X)
    scale = 1.0 if classify else float(np.std(y))
    key = "probabilities" if classify else "prediction"
    np.testing.assert_allclose(found[key] / scale, wanted / scale, atol=1e-5)
    if classify:
        assert (found["label"] == fitted.predict(X)).all()
    explained = fitted.explain_local(X)
    close = 1e-4 if "clamp" not in name else 0.05  # ladders that jump are followed by secants, there by fewer
    if contributions:
        np.testing.assert_allclose(found["contributions"] / scale, explained.values / scale, atol=close)
        sums = found["contributions"].sum(2) + explained.base_values
        np.testing.assert_allclose(sums / scale, explained.scores / scale, atol=1e-4)
    for n in (1, 7):  # the number of rows is free
        few = session.run(None, feed(session, X.iloc[:n]))
        assert [len(own) for own in few] == [n] * len(names)

    extra = {"cofrnet.json": ""}
    program = torch.export.load(fitted.to_torch(tmp_path / "m.pt2", contributions=contributions), extra_files=extra)
    about = json.loads(extra["cofrnet.json"])
    found = program.module()(torch.from_numpy(codes(X, about["columns"])))
    np.testing.assert_allclose(found[0].numpy().reshape(wanted.shape) / scale, wanted / scale, atol=1e-5)
    if contributions:
        np.testing.assert_allclose(found[1].numpy() / scale, explained.values / scale, atol=close)


def codes(X, columns):
    """The table of a torch program: positions of levels, -1 for any other, NaN for missing."""
    found = []
    for column in columns:
        values = X[column["name"]]
        if column["kind"] == "number":
            found.append(values.to_numpy(dtype=np.float64))
            continue
        places = {level: i for i, level in enumerate(column["levels"])}
        found.append([np.nan if pd.isna(v) else places.get(str(v), -1) for v in values])
    return np.array(found, dtype=np.float64).T


def test_a_model_of_an_array_takes_one_input(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.stack([X[:, 0], X[:, 0] * X[:, 1]], axis=1)
    fitted = CoFrNetRegressor(**FAST).fit(X, y)
    path = fitted.to_onnx(tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path))
    assert [(i.name, i.type) for i in session.get_inputs()] == [("X", "tensor(double)")]
    X[0, 0] = np.nan
    np.testing.assert_allclose(session.run(None, {"X": X})[0], fitted.predict(X), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["unit"] == "unit of each target"


def test_least_squares_models_stay_in_double_precision(tmp_path):
    x = np.linspace(-1, 1, 300)[:, None]
    y = 1 / (1.2 + x[:, 0])
    fitted = CoFrNetRegressor(variant="F", n_ladders=1, depth=2, random_state=0).fit(x, y)
    assert fitted.model_.head.dtype == torch.float64
    session = onnxruntime.InferenceSession(str(fitted.to_onnx(tmp_path / "m.onnx")))
    np.testing.assert_allclose(session.run(None, {"X": x})[0], fitted.predict(x), atol=1e-12)


def test_names_of_columns_may_be_ours(tmp_path):
    X = pd.DataFrame({"table": np.arange(50.0), "cofrnet": np.arange(50.0) % 7})
    fitted = CoFrNetRegressor(**FAST).fit(X, X["table"])
    session = onnxruntime.InferenceSession(str(fitted.to_onnx(tmp_path / "m.onnx")))
    np.testing.assert_allclose(session.run(None, feed(session, X))[0], fitted.predict(X), rtol=1e-5)
    X = X.rename(columns={"table": "prediction"})
    with pytest.raises(ValueError, match="must not have the name of an output of the ONNX graph; got 'prediction'"):
        CoFrNetRegressor(**FAST).fit(X, X["prediction"]).to_onnx(tmp_path / "n.onnx")
