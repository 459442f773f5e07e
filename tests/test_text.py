"""The classifier of texts: what it learns, what its words add, and what it makes of strange input."""

import itertools
import pickle
import random
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import cofrnet
from cofrnet import CoFrNetTextClassifier
from cofrnet.errors import ModelFileError
from cofrnet.explain.inputs import contributions, mean_slopes
from cofrnet.explain.words import bag_contributions
from cofrnet.files import read_tensors, tensors_to_bytes
from cofrnet.nn import Bag, BagCoFrNet, BagSpec, CoFrNet
from cofrnet.texts import relevance
from cofrnet.training import FitInterruptedWarning

GOOD, BAD = ["lovely", "splendid", "joyful", "wonderful"], ["dreadful", "boring", "terrible", "weak"]
_PLAIN = "the film was and with some people in it on a day of rain said who when then there"
PLAIN = _PLAIN.split()


def reviews(n, seed=0, classes=("bad", "good")):
    """Texts of which some words tell the class; "not" in front turns a word around, which no single word tells."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(n):
        label = rng.random() < 0.5
        said = rng.choice(GOOD if label else BAD)
        if rng.random() < 0.3:
            said = "not " + rng.choice(BAD if label else GOOD)
        rest = [rng.choice(PLAIN) for _ in range(rng.randint(3, 12))]
        rest.insert(rng.randint(0, len(rest)), said)
        texts.append(" ".join(rest))
        labels.append(classes[label])
    return texts, np.array(labels)


@pytest.fixture(scope="module")
def fitted():
    X, y = reviews(600)
    return CoFrNetTextClassifier(random_state=0).fit(X, y)


def test_it_learns_words_and_pairs(fitted):
    X, y = reviews(300, seed=1)
    assert fitted.score(X, y) > 0.97
    assert fitted.predict_proba(X).sum(1) == pytest.approx(1)
    words_alone = CoFrNetTextClassifier(pairs=False, random_state=0).fit(*reviews(600))
    assert words_alone.score(X, y) < fitted.score(X, y)
    assert list(fitted.classes_) == ["bad", "good"]
    assert fitted.predict(["splendid splendid"]) == ["good"]


def test_the_same_seed_gives_the_same_model(fitted):
    again = CoFrNetTextClassifier(random_state=0).fit(*reviews(600))
    X, _ = reviews(50, seed=2)
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    other = CoFrNetTextClassifier(random_state=1).fit(*reviews(600))
    assert np.abs(other.decision_function(X) - fitted.decision_function(X)).max() > 0


def test_strange_texts(fitted):
    texts = ["", " ", "xyzzy qwerty", "lovely " * 20_000, "\x00\ud800 lovely", "😀😀", "<br/>"]
    scores = fitted.decision_function(texts)
    assert np.isfinite(scores).all()
    assert scores[0] == scores[1] == scores[2] == scores[5]
    assert scores[3] > scores[0]
    np.testing.assert_array_equal(fitted.decision_function([None, float("nan")]), scores[:1].repeat(2))
    assert fitted.predict([]).shape == (0,)
    one = fitted.decision_function(["a lovely day"])
    many = fitted.decision_function(["a lovely day", *reviews(100)[0]])
    assert many[0] == pytest.approx(one[0], abs=1e-6)


def test_all_ways_to_give_texts(fitted):
    X, _ = reviews(20, seed=3)
    expected = fitted.decision_function(X)
    for given in (np.array(X), np.array(X, dtype=object), pd.Series(X), pl.Series("t", X), pd.DataFrame({"t": X}),
                  np.array(X)[:, None], tuple(X), pd.Series(X, dtype="string")):  # fmt: skip
        np.testing.assert_array_equal(fitted.decision_function(given), expected)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        ("one text", "several texts, not one"),
        ([1, 2], "got 1 of type int in row 0"),
        (["a", b"b"], "of type bytes in row 1"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "one column of texts; got 2 columns"),
        (np.array([["a", "b"]]), "rows of several values"),
    ],
)
def test_bad_texts_are_named(fitted, X, said):
    with pytest.raises(ValueError, match=said):
        fitted.predict(X)
    with pytest.raises(ValueError, match=said):
        CoFrNetTextClassifier().fit(X, [0] * 2)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"input": "words"}, "input must be"),
        ({"input": "vectors"}, "embeddings must be"),
        ({"variant": "D"}, "variant must be one of auto, F for input='bag'"),
        ({"width": 0}, "width must be"),
        ({"min_texts": 0}, "min_texts must be"),
        ({"max_epochs": "soon"}, "max_epochs must be"),
        ({"learning_rate": -1}, "learning_rate must be"),
        ({"weight_decay": "x"}, "weight_decay must be"),
        ({"tokenizer": "words"}, "tokenizer must be"),
        ({"device": "gpu9"}, "device must be"),
        ({"n_members": 2, "checkpoint": "x"}, "n_members must be 1 with a checkpoint"),
        ({"max_epochs": 2.5}, "max_epochs must be"),
    ],
)
def test_bad_parameters_are_named(parameters, said):
    with pytest.raises(ValueError, match=said):
        CoFrNetTextClassifier(**parameters).fit(*reviews(20))


def test_bad_targets_are_named():
    X, y = reviews(20)
    with pytest.raises(ValueError, match="one class"):
        CoFrNetTextClassifier().fit(X, ["a"] * 20)
    with pytest.raises(ValueError, match="as many rows"):
        CoFrNetTextClassifier().fit(X, y[:-1])
    with pytest.raises(ValueError, match="it has none"):
        CoFrNetTextClassifier().fit(["", "?!"[:0]] * 10, y)
    with pytest.raises(ValueError, match="min_texts=2"):
        CoFrNetTextClassifier().fit([f"word{i}" for i in range(20)], y)
    with pytest.raises(NotFittedError):
        CoFrNetTextClassifier().predict(X)


def test_several_classes_and_weights():
    rng = random.Random(0)
    topics = {"sport": "goal match team", "food": "bread soup salt", "law": "court judge appeal"}
    labels = [rng.choice(list(topics)) for _ in range(500)]
    texts = [" ".join(rng.choice(topics[c].split() + PLAIN) for _ in range(12)) for c in labels]
    model = CoFrNetTextClassifier(random_state=0, class_weight="balanced").fit(
        texts, labels, sample_weight=np.ones(500)
    )
    assert model.score(texts, labels) > 0.97
    assert model.decision_function(texts[:4]).shape == (4, 3)
    explanation = model.explain_local(texts[:4])
    total = np.array([own.sum(0) for own in explanation.values])
    np.testing.assert_allclose(total + explanation.base_values, explanation.scores, atol=1e-4)
    assert "goal" in [name for name, _, _ in model.explain_global().top(8, output=list(model.classes_).index("sport"))]


def test_scikit_learn_can_use_it():
    X, y = reviews(200)
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, X, y, cv=3).mean() > 0.8
    search = GridSearchCV(model, {"pairs": [True, False]}, cv=2).fit(X, y)
    assert search.best_params_ == {"pairs": True}
    lower = make_pipeline(FunctionTransformer(lambda texts: [text.upper() for text in texts]), model).fit(X, y)
    assert lower.score(X, y) > 0.9
    twin = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))


with warnings.catch_warnings():  # most of the checks are for tables, and say so
    warnings.simplefilter("ignore", SkipTestWarning)
    CHECKS = list(estimator_checks_generator(CoFrNetTextClassifier(max_epochs=1), legacy=True))


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS])
def test_scikit_learn_checks_that_apply_to_texts(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------------------ what words add


def test_contributions_are_integrated_gradients(fitted):
    """Against integrals of autograd's gradients by the weights of the bag, in float64."""
    X, _ = reviews(5, seed=4)
    x = fitted._encoded(X)
    model = BagCoFrNet(fitted.model_.spec, dtype=torch.float64)
    model.load_state_dict(fitted.model_.state_dict())
    x = Bag(x.offsets, x.ids, x.weights.double())
    values, gap = bag_contributions(model, x, 1e-9)
    assert np.abs(gap).max() < 1e-9
    points, shares = np.polynomial.legendre.leggauss(64)
    dense = x.dense(len(fitted.vocabulary_))
    total = torch.zeros_like(dense)
    for point, share in zip((points + 1) / 2, shares / 2, strict=True):
        scaled = (point * dense).requires_grad_()
        score = (scaled @ model.linear + model.cofrnet(scaled @ model.embedding)).sum()
        total += share * torch.autograd.grad(score, scaled)[0]
    rows = np.repeat(np.arange(len(X)), np.diff(x.offsets.numpy()))
    expected = (total * dense)[rows, x.ids].detach().numpy()
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-9)


def test_mean_slopes_make_contributions():
    torch.manual_seed(0)
    model = CoFrNet(n_features=7, n_outputs=2, variant="F", n_ladders=4, depth=3, dtype=torch.float64)
    x, start = torch.randn(20, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    found = mean_slopes(model, x, start, 1e-8)
    np.testing.assert_allclose(
        found.values * (x - start).unsqueeze(1), contributions(model, x, start, 1e-8).values, atol=1e-7
    )
    with pytest.raises(ValueError, match="without curves"):
        mean_slopes(CoFrNet(n_features=2, variant="D"), torch.zeros(1, 2), torch.zeros(2))


def test_words_add_up_and_are_where_they_are_said_to_be(fitted):
    texts = ["It was LOVELY, lovely; not dreadful!", "", "xyzzy", "not joyful"]
    explanation = fitted.explain_local(texts)
    assert len(explanation) == 4
    for i, text in enumerate(texts):
        assert explanation.words(i) == [text[begin:end] for begin, end in explanation.spans[i]]
        assert explanation.values[i].sum() + explanation.base_values[0] == pytest.approx(
            explanation.scores[i, 0], abs=1e-4
        )
    np.testing.assert_allclose(explanation.scores[:, 0], fitted.decision_function(texts), atol=1e-6)
    assert explanation.words(0)[2] == "LOVELY"
    assert explanation.values[0][2, 0] > 0
    phrases = dict(explanation.phrases(3))
    assert phrases["not joyful"][0] < 0
    assert dict(explanation.strongest(0))["lovely"] == pytest.approx(explanation.values[0][2:4, 0].sum())
    assert explanation.pieces(2) == [("xyzzy", 0.0)]
    assert len(explanation.columns()["word"]) == sum(map(len, explanation.values))
    assert explanation == fitted.explain_local(texts)
    assert "LOVELY" in explanation.to_json()


def test_highlighted_text_is_escaped(fitted):
    text = "<script>alert(1)</script> lovely & <b>bold</b>"
    page = fitted.explain_local([text]).to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert ">lovely</span>" in page


def test_what_matters_overall(fitted):
    overall = fitted.explain_global()
    names = [name for name, _, _ in overall.top(12, stop_words=True, pairs=False)]
    assert {"lovely", "splendid", "dreadful", "terrible"} <= set(names)
    assert not {"the", "of", "a"} & set(names)
    assert all(effect > 0 for _, _, effect in overall.top(5, sign=1))
    assert all(" " in name for name, _, _ in overall.top(5, pairs=True))
    assert "lovely" not in [name for name, _, _ in overall.top(20, stop_words=["lovely"])]
    few = fitted.explain_global(["lovely weather", "dreadful"])
    assert (few.n_texts, set(few.names) & {"lovely", "dreadful"}) == (2, {"lovely", "dreadful"})
    assert "lovely" in str(overall)
    assert "words" in fitted.summary()


# ------------------------------------------------------------------------------------------ other inputs and members


def test_members_are_one_model():
    X, y = reviews(300)
    model = CoFrNetTextClassifier(n_members=3, random_state=0).fit(X, y)
    x = model._encoded(X[:20])
    assert model.model_.member_scores(x).shape == (20, 3, 1)
    spec = BagSpec(9, 2, width=4, n_ladders=3)
    for width in (4, None):
        parts = [BagCoFrNet(BagSpec(9, 2, width=width, n_ladders=3)) for _ in range(3)]
        bag = Bag(torch.tensor([0, 2, 2, 5]), torch.tensor([0, 8, 1, 2, 3]), torch.rand(5))
        whole = BagCoFrNet.of_members(parts)
        torch.testing.assert_close(whole.member_scores(bag), torch.stack([part(bag) for part in parts], 1))
        torch.testing.assert_close(whole(bag), torch.stack([part(bag) for part in parts]).mean(0))
        assert whole.spec.n_parameters == sum(p.numel() for p in whole.parameters())
    assert BagSpec.from_dict(spec.to_dict()) == spec
    explanation = model.explain_local(X[:3])
    assert np.abs(explanation.gap).max() < 1e-4


def test_bags_are_indexed_as_tensors_are():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, 40)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    bag = Bag(offsets, torch.from_numpy(rng.integers(0, 9, counts.sum())), torch.rand(int(counts.sum())))
    dense = bag.dense(9)
    order = torch.randperm(40)
    torch.testing.assert_close(bag[order].dense(9), dense[order])
    torch.testing.assert_close(bag[3:9].dense(9), dense[3:9])
    torch.testing.assert_close(bag[3:20:4].dense(9), dense[3:20:4])
    for own, expected in zip(bag.split(7), dense.split(7), strict=True):
        torch.testing.assert_close(own.dense(9), expected)
    for own, expected in zip(bag.tensor_split(3), dense.tensor_split(3), strict=True):
        torch.testing.assert_close(own.dense(9), expected)
    model = BagCoFrNet(BagSpec(9, 2, width=4))
    expected = dense @ model.linear + model.cofrnet(dense @ model.embedding)
    torch.testing.assert_close(model(bag), expected)


def test_gradients_of_bags_are_those_of_dense_rows():
    bag = Bag(torch.tensor([0, 2, 2, 5]), torch.tensor([0, 8, 1, 2, 8]), torch.rand(5))
    model = BagCoFrNet(BagSpec(9, 2, width=4))
    dense = bag.dense(9)
    for have_grad in (False, True):
        model.zero_grad()
        if have_grad:
            model.embedding.grad = torch.ones_like(model.embedding)
        model(bag).square().sum().backward()
        found = model.embedding.grad - float(have_grad)
        model.zero_grad()
        (dense @ model.linear + model.cofrnet(dense @ model.embedding)).square().sum().backward()
        torch.testing.assert_close(found, model.embedding.grad, atol=1e-5, rtol=1e-4)


def test_tfidf_goes_straight_into_ladders():
    X, y = reviews(400)
    model = CoFrNetTextClassifier(input="tfidf", n_ladders=4, random_state=0).fit(X, y)
    assert model.score(*reviews(200, seed=1)) > 0.8
    assert model.model_.spec.width is None
    explanation = model.explain_local(X[:3])
    assert np.abs(explanation.gap).max() < 1e-4
    x = model._encoded(X[:10])
    dense = x.dense(len(model.vocabulary_))
    full = model.model_.cofrnet.full
    a = (dense @ model.model_.embedding).view(10, 4, 4).transpose(0, 1) + full.full_rungs()[1].view(4, 1, 4)
    from cofrnet.core import ladder

    head = model.model_.cofrnet.head.view(-1)
    expected = ladder(a) @ head + (dense @ model.model_.linear)[:, 0] + model.model_.cofrnet.intercept
    expected = expected + (dense @ model.model_.embedding) @ model.model_.cofrnet.linear.view(-1)
    torch.testing.assert_close(model.model_(x)[:, 0], expected, atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path = tmp_path_factory.mktemp("vectors") / "v.txt"
    rng = np.random.default_rng(0)
    known = {word for text in reviews(300)[0] for word in text.split()} | {"unused"}
    path.write_text("".join(f"{word} {' '.join(map(str, rng.standard_normal(6)))}\n" for word in sorted(known)))
    return path


@pytest.mark.parametrize("variant", ["D", "DL"])
def test_vectors_of_words_side_by_side(vectors, variant):
    rng = random.Random(0)
    y = np.array([i % 2 for i in range(600)])
    X = [" ".join([rng.choice(GOOD if own else BAD), *rng.choices(PLAIN, k=5)]) for own in y]
    model = CoFrNetTextClassifier(
        input="vectors", variant=variant, embeddings=vectors, width=4, length=20, max_epochs=40, learning_rate=0.03,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    assert model.model_.spec.n_features == 80
    assert model.score(X, y) > 0.97
    assert "unused" not in model.vocabulary_.words
    assert (model.model_.vectors[0] == 0).all()
    texts = ["lovely " * 50, "", "xyzzy lovely"]
    explanation = model.explain_local(texts)
    assert [len(own) for own in explanation.values] == [50, 0, 2]
    assert np.abs(explanation.gap).max() < 1e-3
    assert (explanation.values[0][20:] == 0).all()
    assert explanation.values[2][0, 0] == 0 or "xyzzy" in model.vocabulary_.words
    assert {"lovely"} <= set(model.explain_global().names)
    fixed = CoFrNetTextClassifier(
        input="vectors", embeddings=vectors, width=4, length=20, max_epochs=2, tune_embeddings=False, random_state=0
    ).fit(X, y)
    np.testing.assert_array_equal(fixed.model_.vectors.detach().numpy(), fixed.vectors_)


def test_members_that_share_words_are_trained_as_one(vectors):
    X, y = reviews(450)
    for learned in (True, False):
        model = CoFrNetTextClassifier(
            input="vectors", variant="D", embeddings=vectors, length=9, n_members=2, max_epochs=2, random_state=0,
            tune_embeddings=learned,
        ).fit(X, y)  # fmt: skip
        assert model.model_.cofrnet.spec.n_members == 2
        assert np.isfinite(model.history_["validation_loss"]).all()
    model = CoFrNetTextClassifier(n_members=2, max_epochs=2, warm_start=True, random_state=0).fit(X, y)
    assert model.fit(X, y).score(X, y) > 0.9


def test_held_out_texts_without_weight_are_trained_on():
    _, y = reviews(450)
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0)
    codes = np.unique(y, return_inverse=True)[1]
    rows, held = model._split(codes, np.random.RandomState(0), False)
    assert len(rows) + len(held) == 450
    weight = np.ones(450)
    weight[held] = 0
    assert model._split(codes, np.random.RandomState(0), False, weight)[1] is None


def test_bags_can_start_from_vectors(vectors):
    X, y = reviews(300)
    model = CoFrNetTextClassifier(embeddings=vectors, max_epochs=1, random_state=0).fit(X, y)
    assert model.model_.spec.width == 32
    assert model.score(X, y) > 0.9
    with pytest.raises(ValueError, match="has none of them"):
        CoFrNetTextClassifier(embeddings=vectors).fit(["zzz yyy", "xxx zzz"] * 10, [0, 1] * 10)
    with pytest.raises(FileNotFoundError):
        CoFrNetTextClassifier(embeddings="nowhere.txt").fit(X, y)


# ------------------------------------------------------------------------------------------ files and programs


def test_what_is_loaded_is_what_was_saved(fitted, vectors, tmp_path):
    X, y = reviews(120)
    models = [
        fitted,
        CoFrNetTextClassifier(n_members=2, max_epochs=1, random_state=0).fit(pd.Series(X, name="said"), y == "good"),
        CoFrNetTextClassifier(input="tfidf", max_epochs=1, random_state=0).fit(X, y),
        CoFrNetTextClassifier(max_features=10, n_buckets=16, max_epochs=1, random_state=0).fit(X, y),
        CoFrNetTextClassifier(input="vectors", embeddings=vectors, length=9, max_epochs=1, random_state=0).fit(X, y),
    ]
    for i, model in enumerate(models):
        twin = cofrnet.load(model.save(tmp_path / f"{i}.cofrnet"))
        np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))
        assert twin.explain_global() == model.explain_global()
        assert twin.explain_local(X[:2]) == model.explain_local(X[:2])
        assert (twin.text_name_, twin.target_name_) == (model.text_name_, model.target_name_)
        assert list(twin.classes_) == list(model.classes_)
    assert models[1].text_name_ == "said"


def test_a_tokenizer_of_ones_own_is_asked_for(tmp_path):
    X, y = reviews(60)
    model = CoFrNetTextClassifier(tokenizer=str.split, max_epochs=1, random_state=0).fit(X, y)
    explanation = model.explain_local(["a  lovely day"])
    assert explanation.words(0) == ["a", "lovely", "day"]
    twin = cofrnet.load(model.save(tmp_path / "m.cofrnet"))
    with pytest.raises(ValueError, match="set_params\\(tokenizer"):
        twin.predict(X)
    twin.set_params(tokenizer=str.split)
    np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))


def test_hostile_files_are_refused(fitted, tmp_path):
    path = fitted.save(tmp_path / "m.cofrnet")
    tensors, about = read_tensors(path)

    def written(**changes):
        changed = {**about, **changes}
        return tensors_to_bytes(tensors, {k: v for k, v in changed.items() if k != "format"})

    vocabulary = about["vocabulary"]
    strange = [
        {"vocabulary": {**vocabulary, "words": vocabulary["words"][:-1]}},
        {"vocabulary": {**vocabulary, "words": ["a"] * len(vocabulary["words"])}},
        {"vocabulary": {**vocabulary, "words": [1] * len(vocabulary["words"])}},
        {"vocabulary": {**vocabulary, "words": ["x\0y", *vocabulary["words"][1:]]}},
        {"vocabulary": {**vocabulary, "buckets": 10**15}},
        {"vocabulary": None},
        {"spec": {**about["spec"], "n_inputs": 10**12}},
        {"spec": {**about["spec"], "n_ladders": 10**12}},
        {"spec": {**about["spec"], "width": -3}},
        {"spec": {**about["spec"], "pole": 7}},
        {"spec": {**about["spec"], "unknown": 7}},
        {"text_name": 3},
        {"explained_texts": "many"},
        {"parameters": {**about["parameters"], "input": "vectors"}},
        {"parameters": {**about["parameters"], "input": {"dict": []}}},
    ]
    for change in strange:
        (tmp_path / "bad.cofrnet").write_bytes(written(**change))
        with pytest.raises(ModelFileError):
            cofrnet.load(tmp_path / "bad.cofrnet")
    plain = {k: v for k, v in about.items() if k != "format"}
    for name in tensors:
        strange = [np.append(tensors[name].reshape(-1), tensors[name].dtype.type(0)), None]
        if not name.startswith("model/") and "sums" not in name and "sizes" not in name:
            strange.append(np.full_like(tensors[name], -1e20))
        for other in strange:
            changed = {k: v for k, v in tensors.items() if k != name} | ({} if other is None else {name: other})
            (tmp_path / "bad.cofrnet").write_bytes(tensors_to_bytes(changed, plain))
            with pytest.raises(ModelFileError):
                cofrnet.load(tmp_path / "bad.cofrnet")


def test_flipped_bytes_are_refused_or_harmless(tmp_path):
    """Nothing but a `ModelFileError`, whatever is in the file."""
    X, y = reviews(40)
    path = CoFrNetTextClassifier(max_epochs=1, width=2, n_ladders=1, random_state=0).fit(X, y).save(tmp_path / "m")
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    rng = random.Random(0)
    for i in range(400):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 3))):
            changed[rng.randrange(header if i % 2 else len(changed))] = rng.randrange(256)
        path.write_bytes(bytes(changed[: rng.randrange(len(changed))] if i % 10 == 0 else changed))
        try:
            model = cofrnet.load(path)
        except ModelFileError:
            continue
        assert np.isfinite(model.predict_proba(X[:3])).all()
        model.explain_local(X[:2])


def test_exported_programs_say_the_same(fitted, vectors, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    X, y = reviews(50, seed=5)
    X += ["", "xyzzy"]
    several = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(X, [i % 3 for i in range(len(X))])
    ordered = CoFrNetTextClassifier(input="vectors", embeddings=vectors, length=9, max_epochs=1, random_state=0)
    ordered.fit(X[:50], y)
    for model in (fitted, several, ordered):
        words = model.token_ids(X)
        session = ort.InferenceSession(model.to_onnx(tmp_path / "m.onnx"))
        label, probabilities = session.run(None, {"words": words})
        np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5)
        assert list(label) == list(model.predict(X))
        one = session.run(None, {"words": words[:1]})[1]
        np.testing.assert_allclose(one, probabilities[:1], atol=1e-6)
        program = torch.export.load(model.to_torch(tmp_path / "m.pt2")).module()
        np.testing.assert_allclose(program(torch.from_numpy(words)).numpy(), probabilities, atol=1e-6)
    with pytest.raises(ValueError, match="explain_local"):
        fitted.to_onnx(tmp_path / "m.onnx", contributions=True)


# ------------------------------------------------------------------------------------------ training


def test_training_goes_on_from_checkpoints(tmp_path):
    X, y = reviews(200)
    whole = CoFrNetTextClassifier(max_epochs=4, random_state=0).fit(X, y)

    def stop(epoch):
        if epoch.number == 1:
            raise SystemExit

    settings = {"max_epochs": 4, "random_state": 0, "checkpoint": tmp_path / "c"}
    with pytest.raises(SystemExit):
        CoFrNetTextClassifier(**settings, callbacks=[stop]).fit(X, y)
    resumed = CoFrNetTextClassifier(**settings).fit(X, y)
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))
    assert resumed.n_iter_ == 4


def test_ctrl_c_keeps_the_best_so_far():
    def interrupt(epoch):
        if epoch.number == 1:
            raise KeyboardInterrupt

    X, y = reviews(200)
    with pytest.warns(FitInterruptedWarning):
        model = CoFrNetTextClassifier(n_members=3, callbacks=[interrupt], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.model_.spec.n_members == 1


def test_warm_start_and_given_validation_texts():
    X, y = reviews(200)
    model = CoFrNetTextClassifier(warm_start=True, max_epochs=1, random_state=0).fit(X, y, X_val=X[:50], y_val=y[:50])
    before = model.vocabulary_
    assert "validation_loss" in model.history_
    model.fit(X, y)
    assert model.vocabulary_ is before


def test_memory_is_bounded_by_parts(fitted, monkeypatch):
    monkeypatch.setattr("cofrnet.estimators.text.AT_ONCE", 7)
    monkeypatch.setattr("cofrnet.estimators.words.AT_ONCE", 3)
    X, _ = reviews(30, seed=6)
    expected = fitted.decision_function(X)
    monkeypatch.undo()
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=1e-5)


def test_rare_classes_are_ranked_as_logistic_regression_does():
    X, y = reviews(3000, seed=7)
    kept = np.flatnonzero((y == "bad") | (np.arange(3000) % 20 == 0))
    X, y = [X[i] for i in kept], y[kept]
    model = CoFrNetTextClassifier(random_state=0).fit(X[:800], y[:800])
    plain = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2), LogisticRegression(C=3)).fit(X[:800], y[:800])
    ours, theirs = (roc_auc_score(y[800:], own.decision_function(X[800:])) for own in (model, plain))
    assert ours > theirs - 0.02


def test_every_pair_of_inputs_and_poles():
    X, y = reviews(80)
    for kind, pole in itertools.product(("bag", "tfidf"), ("smooth", "clamp")):
        model = CoFrNetTextClassifier(input=kind, pole=pole, max_epochs=1, depth=2, random_state=0).fit(X, y)
        explanation = model.explain_local(X[:4])
        assert np.abs(explanation.gap).max() < 1e-3


# ------------------------------------------------------------------------------------------ what went wrong once


@pytest.mark.parametrize("seed", [0, 13])
def test_classes_without_words_or_weight_are_no_harm(seed):
    X, y = reviews(500)
    one = [*X, "lovely lonely"], np.array([*y, "third"])
    wordless = [*X, *["xyzzy" + str(i) for i in range(30)]], np.array([*y, *["third"] * 30])
    for texts, labels in (one, wordless):
        model = CoFrNetTextClassifier(max_epochs=1, random_state=seed).fit(texts, labels)
        assert np.isfinite(model.predict_proba(texts)).all()
    weight = (y == "good").astype(float)
    model = CoFrNetTextClassifier(max_epochs=1, random_state=0).fit(X, y, sample_weight=weight)
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_array_equal(relevance(np.array([[3.0, 0.0], [0.0, 0.0]])), [1, 1])


def test_rare_features_of_a_rare_class_say_little():
    """A word seen twice, in the larger class, must not look as if it told the smaller one."""
    counts = np.array([[1000.0, 2.0, 0.0], [50.0, 0.0, 2.0]])
    found = relevance(counts)
    assert found[2] > found[1]
    assert found[1] < 1


def test_missing_values_of_pandas_are_empty_texts(fitted):
    missing = pd.Series(["lovely", pd.NA, None], dtype="string")
    np.testing.assert_array_equal(fitted.decision_function(missing)[1:], fitted.decision_function(["", ""]))


def test_the_tokenizer_is_the_one_of_the_fit(tmp_path):
    X, y = reviews(60)
    model = CoFrNetTextClassifier(tokenizer=str.split, max_epochs=1, random_state=0).fit(X, y)
    twice = cofrnet.load(cofrnet.load(model.save(tmp_path / "a")).save(tmp_path / "b"))
    with pytest.raises(ValueError, match="set_params"):
        twice.predict(X)
    model.set_params(tokenizer=None)
    with pytest.raises(ValueError, match="set_params"):
        model.predict(X)
    assert np.isfinite(cofrnet.load(tmp_path / "a").fit(X, y).decision_function(X)).all()


def test_bags_with_strange_ids_are_refused():
    model = BagCoFrNet(BagSpec(9, width=4))
    for offsets, ids in (([0, 1], [9]), ([0, 1], [-1]), ([0, 2], [1]), ([1, 1], [1]), ([0, 2, 1, 2], [0, 1])):
        with pytest.raises(ValueError, match="a bag must have ids"):
            model(Bag(torch.tensor(offsets), torch.tensor(ids), torch.ones(len(ids))))


def test_gradients_are_given_to_whoever_asks():
    bag = Bag(torch.tensor([0, 2]), torch.tensor([0, 3]), torch.rand(2).requires_grad_())
    model = BagCoFrNet(BagSpec(5, width=4))
    model(bag).sum().backward()
    assert bag.weights.grad is not None
    before = model.embedding.grad.clone()
    plain = Bag(bag.offsets, bag.ids, bag.weights.detach())
    (found,) = torch.autograd.grad(model(plain).sum(), model.embedding)
    torch.testing.assert_close(found, before)
    torch.testing.assert_close(model.embedding.grad, before)


def test_words_of_vectors_count_once_a_text(vectors):
    X, y = reviews(100)
    model = CoFrNetTextClassifier(input="vectors", embeddings=vectors, length=9, max_epochs=1, random_state=0).fit(X, y)
    overall = model.explain_global(["the the the the", "lovely"])
    assert dict(zip(overall.names, overall.counts.tolist(), strict=True)) == {"the": 1, "lovely": 1}
    with pytest.raises(ValueError, match="embeddings must be None for input='tfidf'"):
        CoFrNetTextClassifier(input="tfidf", embeddings=vectors).fit(X, y)
    several = CoFrNetTextClassifier(
        input="vectors", variant="D", n_ladders=3, embeddings=vectors, length=4, max_epochs=1
    ).fit(X, y)
    assert several.model_.spec.ladders_per_feature == 3


def test_validation_texts_come_with_labels():
    X, y = reviews(60)
    with pytest.raises(ValueError, match="X_val and y_val must be given together"):
        CoFrNetTextClassifier().fit(X, y, X_val=X)
    with pytest.raises(ValueError, match="validation_fraction must be"):
        CoFrNetTextClassifier(validation_fraction="a").fit(X, y)
    with pytest.raises(ValueError, match="learning_rate must be"):
        CoFrNetTextClassifier(learning_rate=float("inf")).fit(X, y)
    model = CoFrNetTextClassifier(warm_start=True, max_epochs=1).fit(X, y).set_params(input="vectors", embeddings="x")
    with pytest.raises(ValueError, match="as it was in the fit to go on from"):
        model.fit(X, y)


def test_a_fit_that_fails_leaves_the_model_as_it_was(fitted):
    X, _ = reviews(20, seed=8)
    model = pickle.loads(pickle.dumps(fitted))
    before = model.decision_function(X)
    for texts, labels in (([""] * 4, list("abca")), ([1, 2], [0, 1]), (X, ["one"] * 20)):
        with pytest.raises(ValueError):  # noqa: PT011
            model.fit(texts, labels)
        np.testing.assert_array_equal(model.decision_function(X), before)
        assert list(model.classes_) == ["bad", "good"]


def test_single_texts_of_a_class_are_trained_on():
    X, y = reviews(600)
    texts = [*X, *(f"topic{i} topic{i}x" for i in range(30))]
    labels = np.array([*y, *(f"only {i}" for i in range(30))])
    for kind, seed in itertools.product(("bag", "tfidf"), (1, 2)):
        model = CoFrNetTextClassifier(input=kind, min_texts=1, random_state=seed).fit(texts, labels)
        assert np.isfinite(model.predict_proba(texts)).all()
        assert (model.predict(X) == y).mean() > 0.85


def test_tokenizers_that_add_words_have_sums_too():
    X, y = reviews(100)
    model = CoFrNetTextClassifier(tokenizer=lambda text: ["[CLS]", *text.split(), "[SEP]"], random_state=0).fit(X, y)
    explanation = model.explain_local(X[:5])
    total = np.array([own.sum(0) for own in explanation.values])
    np.testing.assert_allclose(total + explanation.base_values, explanation.scores, atol=1e-4)


@pytest.mark.parametrize("strange", [None, ["a", 1], b"a", "text", 5])
def test_strange_tokenizers_are_named(strange):
    with pytest.raises(ValueError, match="tokenizer must return a list of strings"):
        CoFrNetTextClassifier(tokenizer=lambda text: strange).fit(*reviews(20))


def test_strange_weights_are_named():
    X, y = reviews(40)
    for weight in (-1, 0, 1e308, [1e300, *[1] * 39], np.full(40, 1e-320)):
        with pytest.raises(ValueError, match="sample_weight must"):
            CoFrNetTextClassifier().fit(X, y, sample_weight=weight)
    for weight in ({"bad": -1, "good": 1}, {"bad": 0, "good": 0}):
        with pytest.raises(ValueError, match="class_weight must"):
            CoFrNetTextClassifier(class_weight=weight).fit(X, y)


def test_checkpoints_know_the_seed_and_the_start(tmp_path):
    X, y = reviews(100)
    settings = {"max_epochs": 2, "checkpoint": tmp_path / "c"}
    model = CoFrNetTextClassifier(random_state=0, warm_start=True, **settings).fit(X, y)
    with pytest.raises(ValueError, match="written by another fit"):
        CoFrNetTextClassifier(random_state=1, **settings).fit(X, y)
    with pytest.raises(ValueError, match="written by another fit"):
        model.fit(X, y)


def test_other_strange_input_is_named(fitted):
    import pyarrow as pa

    X, y = reviews(30, seed=9)
    expected = fitted.decision_function(X)
    for given in (pa.array(X), pa.chunked_array([X])):
        np.testing.assert_array_equal(fitted.decision_function(given), expected)
    for given in (None, 5, b"text"):
        with pytest.raises(ValueError, match="X must be texts"):
            fitted.predict(given)
    with pytest.raises(ValueError, match="at least two texts"):
        CoFrNetTextClassifier().fit([], [])
    with pytest.raises(ValueError, match="at least one row"):
        fitted.quality([], [])
    with pytest.raises(ValueError, match="got dates"):
        CoFrNetTextClassifier().fit(X, np.arange(30).astype("datetime64[D]"))
    with pytest.raises(ValueError, match="epsilon must be"):
        CoFrNetTextClassifier(epsilon="a").fit(X, y)
    changed = pickle.loads(pickle.dumps(fitted)).set_params(input="vectors")
    np.testing.assert_array_equal(changed.decision_function(X), expected)
