"""Model files: what is loaded is what was saved, and nothing else gets in."""

import copy
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes

import cofrnet
from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.errors import ModelFileError

FAST = {"max_epochs": 2, "n_ladders": 2, "ladders_per_feature": 1, "random_state": 0}


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(40, 9, 200), "city": rng.choice(["a", "b"], 200), "open": rng.random(200) > 0.5}
    )
    frame.loc[::9, "age"] = np.nan
    return frame, frame["age"].fillna(1) + 9 * (frame["city"] == "a")


MODELS = {
    "regression": lambda X, y: CoFrNetRegressor(**FAST).fit(X, y),
    "least squares": lambda X, y: CoFrNetRegressor(variant="F", n_ladders=1, depth=1).fit(X[["age"]].fillna(0), y),
    "several targets": lambda X, y: CoFrNetRegressor(**FAST).fit(X, np.stack([y, -y], 1)),
    "texts": lambda X, y: CoFrNetClassifier(**FAST).fit(X, np.where(y > y.median(), "yes", "no")),
    "numbers": lambda X, y: CoFrNetClassifier(**FAST).fit(X, pd.qcut(y, 3, labels=False)),
    "bools": lambda X, y: CoFrNetClassifier(**FAST).fit(X, (y > y.median()).to_numpy()),
    "members": lambda X, y: CoFrNetRegressor(**FAST, n_members=3).fit(X, y),
    "pairs": lambda X, y: CoFrNetRegressor(**FAST, variant="D", interactions=[("age", "city")]).fit(X, y),
    "DL, clamp": lambda X, y: CoFrNetRegressor(**FAST, variant="DL", pole="clamp", scaling="minmax").fit(X, y),
    "monotone": lambda X, y: CoFrNetRegressor(**FAST, monotonic_cst={"age": 1}).fit(X, y),
    "array": lambda X, y: CoFrNetRegressor(**FAST).fit(X[["age"]].to_numpy(), y),
    "in parts": lambda X, y: CoFrNetRegressor(**FAST).partial_fit(X, y),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_is_what_was_saved(name, tmp_path):
    X, y = table()
    model = MODELS[name](X, y)
    X = {"least squares": X[["age"]].fillna(0), "array": X[["age"]].to_numpy()}.get(name, X)
    path = model.save(tmp_path / "model.cofrnet")
    same = cofrnet.load(path)
    assert type(same) is type(model)
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    assert same.predict(X).dtype == model.predict(X).dtype
    assert same.explain_local(X[:5]) == model.explain_local(X[:5])
    assert same.explain_global() == model.explain_global()
    assert same.get_params() == model.get_params() | {"callbacks": None}
    assert same.to_code("python") == model.to_code("python")
    again = same.save(tmp_path / "again.cofrnet")
    assert again.read_bytes() == path.read_bytes()
    if isinstance(X, pd.DataFrame):
        with pytest.raises(ValueError, match="feature names"):
            same.predict(X.rename(columns={"age": "years"}))


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "models").glob("*.cofrnet")), ids=lambda p: p.stem)
def test_files_of_all_versions_load_forever(path):
    """Each has its rows and predictions beside it; `python -m tests.models` writes those of a new format."""
    kept = json.loads(path.with_suffix(".json").read_text())
    model = cofrnet.load(path)
    X = pd.DataFrame(kept["rows"]).astype(kept["dtypes"])
    np.testing.assert_allclose(model.predict_proba(X), kept["probabilities"], rtol=0, atol=1e-6)
    assert model.classes_.tolist() == kept["classes"]


def test_code_does_not_go_into_files(tmp_path):
    X, y = table()
    model = CoFrNetRegressor(
        **FAST, callbacks=[lambda epoch: None], loss=lambda s, t: (s - t.unsqueeze(1)).abs().mean(-1)
    )
    same = cofrnet.load(model.fit(X, y).save(tmp_path / "m.cofrnet"))
    assert same.callbacks is None
    assert same.loss == "squared_error"
    np.testing.assert_array_equal(same.predict(X), model.predict(X))


def test_a_model_that_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        CoFrNetRegressor().save(tmp_path / "m.cofrnet")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        cofrnet.load(tmp_path / "nothing.cofrnet")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y = table()
    model = CoFrNetRegressor(**FAST, variant="D", interactions=[("age", "city")]).fit(X, y)
    return model.save(tmp_path_factory.mktemp("models") / "model.cofrnet").read_bytes()


def reads(content, folder):
    path = folder / "fuzzed.cofrnet"
    path.write_bytes(content)
    try:
        return cofrnet.load(path)
    except ModelFileError:
        return None


@settings(max_examples=1500)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(saved, tmp_path_factory, data):
    """Bits flipped, bytes cut, put in or overwritten, anywhere: a ModelFileError or a model, nothing else."""
    content = bytearray(saved)
    header = int.from_bytes(saved[:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.one_of(st.integers(0, header), st.integers(0, len(content) - 1)))
        place = min(place, len(content) - 1)
        kind = data.draw(st.sampled_from(["flip", "byte", "cut", "insert", "truncate", "repeat"]))
        if kind == "flip":
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "byte":
            content[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 64))]
        elif kind == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=16))
        elif kind == "repeat":
            content[place:place] = content[place : place + 32]
        else:
            del content[place:]
        if not content:
            break
    reads(bytes(content), tmp_path_factory.getbasetemp())


def values_in(tree, path=()):
    """Where the leaves and branches of a JSON tree are."""
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from values_in(value, (*path, key))
    elif isinstance(tree, list):
        for i, value in enumerate(tree[:3]):
            yield from values_in(value, (*path, i))


STRANGE = [None, True, -1, 0, 3, 2**62, 10**400, 1e308, -0.5, "", "x", "D", [], [1], [[]], {}, {"a": 1}, [None] * 5]


@settings(max_examples=1500)
@given(data=st.data())
def test_strange_values_are_refused_or_read(saved, tmp_path_factory, data):
    """Every value of the JSON replaced by another of any kind, or left out."""
    size = int.from_bytes(saved[:8], "little")
    about = json.loads(json.loads(saved[8 : 8 + size])["__metadata__"]["cofrnet"])
    for _ in range(data.draw(st.integers(1, 2))):
        places = [path for path in values_in(about) if path]
        path = data.draw(st.sampled_from(places))
        at = about
        for key in path[:-1]:
            at = at[key]
        if data.draw(st.booleans()):
            at[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(STRANGE)))
        else:
            del at[path[-1]]
    model = reads(save_bytes(load_bytes(saved), {"cofrnet": json.dumps(about)}), tmp_path_factory.getbasetemp())
    if model is not None:
        X, _ = table()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as that the model now has no names of columns
                found = model.predict(X)
        except ValueError:
            return  # columns of another name or kind
        assert len(found) == len(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: b"", "header does not fit"),
        (lambda c: c[:20], "header does not fit"),
        (lambda c: (2**63).to_bytes(8, "little") + c[8:], "header does not fit"),
        (lambda c: c[:-4], "must be a model file"),
        (lambda c: b"PK\x03\x04" + c, "must be a model file|header does not fit"),
    ],
)
def test_the_error_says_what_is_wrong(saved, tmp_path, change, message):
    path = tmp_path / "m.cofrnet"
    path.write_bytes(change(saved))
    with pytest.raises(ModelFileError, match=message):
        cofrnet.load(path)


def with_about(saved, change, tensors=None):
    size = int.from_bytes(saved[:8], "little")
    about = json.loads(json.loads(saved[8 : 8 + size])["__metadata__"]["cofrnet"])
    change(about)
    return save_bytes(tensors or load_bytes(saved), {"cofrnet": json.dumps(about)})


def test_hostile_sizes_allocate_nothing(saved, tmp_path):
    path = tmp_path / "m.cofrnet"
    for field in ("n_features", "n_members", "depth", "ladders_per_feature", "n_outputs"):
        path.write_bytes(with_about(saved, lambda a, field=field: a["spec"].update({field: 10**9})))
        with pytest.raises(ModelFileError, match=field):
            cofrnet.load(path)
    path.write_bytes(with_about(saved, lambda a: a.update({"format": 2})))
    with pytest.raises(ModelFileError, match="of a later version"):
        cofrnet.load(path)
    tensors = {k: v * np.nan for k, v in load_bytes(saved).items()}
    path.write_bytes(with_about(saved, lambda a: None, tensors))
    with pytest.raises(ModelFileError, match="must be finite"):
        cofrnet.load(path)
    tensors = {k: v.astype(np.int64) for k, v in load_bytes(saved).items()}
    path.write_bytes(with_about(saved, lambda a: None, tensors))
    with pytest.raises(ModelFileError, match="must be float32 or float64"):
        cofrnet.load(path)


def test_fuzzed_files_are_refused():
    """Coverage-guided mutations, thousands of them: nothing but `ModelFileError` comes out (see tests/fuzz.py)."""
    pytest.importorskip("atheris", reason="needs atheris")
    command = [sys.executable, "-m", "tests.fuzz", "-runs=5000"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[1]
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Done 5000 runs" in result.stderr


def test_large_whole_classes_stay_as_they_are(tmp_path):
    X, y = table()
    labels = np.where(y > y.median(), 2**53 + 1, 2**60 + 7)
    model = CoFrNetClassifier(**FAST).fit(X, labels)
    assert cofrnet.load(model.save(tmp_path / "m.cofrnet")).classes_.tolist() == [2**53 + 1, 2**60 + 7]
