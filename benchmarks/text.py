"""Texts: fitting and predicting beside TF-IDF with logistic regression, where the time goes, and a stream of texts."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.command import row
from cofrnet import CoFrNetTextClassifier
from cofrnet.core import prepare
from cofrnet.datasets import imdb
from cofrnet.tables import writer
from cofrnet.texts import Vocabulary, tokenized

STREAM = 1_000_000


def seconds(function: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = function()
    return time.perf_counter() - started, found


def measure(quick: bool = False) -> list[dict[str, Any]]:
    X, y, X_test, y_test = imdb()
    if quick:
        X, y, X_test, y_test = X[::5], y[::5], X_test[::5], y_test[::5]
    prepare()
    CoFrNetTextClassifier(max_epochs=1).fit(X[:50] + X[-50:], [0] * 50 + [1] * 50)  # compiles the tokenizer, once
    ours = CoFrNetTextClassifier(random_state=0)
    other = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), LogisticRegression(C=10))
    where = f"IMDB, {len(X)} reviews"
    rows = []
    fit, fit_other = seconds(lambda: ours.fit(X, y))[0], seconds(lambda: other.fit(X, y))[0]
    rows.append(row("TF-IDF + logistic / ours, fit", where, fit, fit_other, fit_other / fit, ""))
    (predict, p), (predict_other, q) = seconds(lambda: ours.predict(X_test)), seconds(lambda: other.predict(X_test))
    rows.append(row("TF-IDF + logistic / ours, predict", where, predict, predict_other, predict_other / predict, ""))
    rows.append(
        {
            "what": "accuracy, ours and TF-IDF + logistic",
            "where": where,
            "ours": f"{np.mean(p == y_test):.4f}",
            "other": f"{np.mean(q == y_test):.4f}",
        }
    )
    tokenize = seconds(lambda: sum(len(own) for _, own in tokenized(X)))[0]
    learn, known = seconds(lambda: Vocabulary.learn(X))
    bags = seconds(lambda: known.bags(X))[0]
    theirs = seconds(lambda: TfidfVectorizer(ngram_range=(1, 2), min_df=2).fit_transform(X))[0]
    rows.append(row("scikit-learn / ours, words to bags", where, learn + bags, theirs, theirs / (learn + bags), ""))
    rows.append(row("fit / tokenizing", where, tokenize, fit, fit / tokenize, "> 2×"))
    rows.append(_stream(ours, STREAM // 10 if quick else STREAM))
    return rows


def _stream(model: CoFrNetTextClassifier, count: int) -> dict[str, Any]:
    """Predict short texts from the command line, in a process of its own, and say how much memory it took."""
    rng = np.random.default_rng(0)
    words = np.array(model.vocabulary_.words[:5000])
    with tempfile.TemporaryDirectory() as folder:
        model.text_name_ = "text"
        path, data = model.save(Path(folder) / "m.cofrnet"), Path(folder) / "texts.csv"
        with writer(data) as write:
            for start in range(0, count, 100_000):
                drawn = words[rng.integers(0, len(words), (min(100_000, count - start), 12))]
                write(pa.table({"text": [" ".join(own) for own in drawn]}))
        command = [sys.executable, "-m", "cofrnet", "predict", str(path), str(data), "-o", str(Path(folder) / "o.csv")]
        taken = seconds(lambda: subprocess.run(command, check=True, capture_output=True))[0]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {
        "what": "cofrnet predict, short texts",
        "where": f"CSV, {count} texts",
        "ours": f"{taken:.3g} s",
        "measured": f"{count / taken:,.0f} texts/s, {peak:.2f} GB at most",
    }
