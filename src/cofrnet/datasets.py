"""Data sets: generators that need no file, and loaders of files that the user has.

Files are looked for in the folder named by the environment variable ``COFRNET_DATA``, then in the user's cache
(``COFRNET_CACHE``, or the usual place); what is not there is fetched from its original public source where that can be
read without further tools, and checked. Else a missing file is an error that says what to get and where to put it.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import os
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cofrnet.files import write_atomically
from cofrnet.images import image_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FUNCTIONS",
    "TABLES",
    "Function",
    "Original",
    "Table",
    "caltech256",
    "cifar10",
    "image_folder",
    "imdb",
    "load_table",
    "locate",
    "quora",
    "waveform",
    "waveform_posterior",
    "word_vectors",
]

Floats = NDArray[np.float64]

WAVEFORM_FEATURES, WAVEFORM_NOISE_FEATURES = 21, 19

# Each class mixes two of three triangular waves, h(i) = max(6 - |i - peak|, 0) for i = 1 .. 21.
_WAVES: Floats = np.maximum(6.0 - np.abs(np.arange(1, 22) - np.array([[11], [15], [7]])), 0.0)  # (3, 21)
_MIXED = ((0, 1), (0, 2), (1, 2))


def waveform(
    n_samples: int = 5000, *, noise_features: bool = True, seed: int | None = None
) -> tuple[Floats, NDArray[np.int64]]:
    """Features and classes of Breiman's Waveform data, three classes of equal weight.

        x = u h_a + (1 - u) h_b + N(0, I),   u uniform in [0, 1], (h_a, h_b) two of three triangular waves

    with 19 features of pure noise behind the 21 of the waves, unless `noise_features` is false. The Bayes rule reaches
    an accuracy of 0.867.

    Returns X (n_samples, 40) or (n_samples, 21), and y (n_samples,) in {0, 1, 2}.
    """
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1; got n_samples={n_samples}.")
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_samples)
    first, second = (_WAVES[np.array([pair[side] for pair in _MIXED])[y]] for side in (0, 1))  # (n, 21) each
    u = rng.random((n_samples, 1))
    X = u * first + (1 - u) * second + rng.standard_normal((n_samples, WAVEFORM_FEATURES))
    if noise_features:
        X = np.hstack([X, rng.standard_normal((n_samples, WAVEFORM_NOISE_FEATURES))])
    return X, y


def waveform_posterior(X: Floats) -> Floats:
    """Exact class probabilities of Waveform rows: what no model can beat on average.

    A class is a Gaussian whose mean runs from b to a with u, so its density is an error function: with v = a - b and
    c = (x - b)·v / |v|^2,

        p(x | class) ~ exp(-(|x - b|^2 - c^2 |v|^2) / 2) (erf(|v|(1 - c)/sqrt 2) + erf(|v| c/sqrt 2)) / |v|

    Shapes: X (n, 21 or more), noise features are ignored; returns (n, 3).
    """
    X = np.asarray(X, dtype=np.float64)[:, :WAVEFORM_FEATURES]
    erf = np.vectorize(math.erf, otypes=[np.float64])
    logs = []
    for a, b in _MIXED:
        v = _WAVES[a] - _WAVES[b]
        length = math.sqrt(v @ v)
        offset = X - _WAVES[b]
        c = offset @ v / length**2
        mass = erf(length * (1 - c) / math.sqrt(2)) + erf(length * c / math.sqrt(2))
        logs.append(-0.5 * ((offset**2).sum(1) - (c * length) ** 2) + np.log(np.maximum(mass, 1e-300) / length))
    log = np.stack(logs, axis=1)
    odds = np.exp(log - log.max(axis=1, keepdims=True))
    posterior: Floats = odds / odds.sum(axis=1, keepdims=True)
    return posterior


@dataclass(frozen=True)
class Function:
    """A function of two variables that optimisers are tried on, over the box that is usual for it.

    `degree` is that of a polynomial, None for others.
    """

    name: str
    value: Callable[[Any, Any], Any]
    box: tuple[tuple[float, float], tuple[float, float]]
    degree: int | None = None

    def sample(self, n_samples: int, seed: int) -> tuple[Floats, Floats]:
        """Points uniform in the box, (n, 2), and values, (n,)."""
        (x0, x1), (y0, y1) = self.box
        X = np.random.default_rng(seed).uniform((x0, y0), (x1, y1), (n_samples, 2))
        return X, np.asarray(self.value(*X.T), dtype=np.float64)


def _goldstein_price(x: Any, y: Any) -> Any:
    first = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    second = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return first * second


def _cross_in_tray(x: Any, y: Any) -> Any:
    inner = np.sin(x) * np.sin(y) * np.exp(np.abs(100 - np.sqrt(x**2 + y**2) / np.pi))
    return -0.0001 * (np.abs(inner) + 1) ** 0.1


def _levi(x: Any, y: Any) -> Any:
    wave = np.sin(3 * np.pi * x) ** 2 + (x - 1) ** 2 * (1 + np.sin(3 * np.pi * y) ** 2)
    return wave + (y - 1) ** 2 * (1 + np.sin(2 * np.pi * y) ** 2)


def _square(half: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (-half, half), (-half, half)


FUNCTIONS = {
    function.name: function
    for function in (
        Function(
            "Beale",
            lambda x, y: (1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2,
            _square(4.5),
            8,
        ),
        Function("Goldstein-Price", _goldstein_price, _square(2), 8),
        Function("Booth", lambda x, y: (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2, _square(10), 2),
        Function("Cross-in-tray", _cross_in_tray, _square(10)),
        Function("Three-hump camel", lambda x, y: 2 * x**2 - 1.05 * x**4 + x**6 / 6 + x * y + y**2, _square(5), 6),
        Function("Himmelblau", lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2, _square(5), 4),
        Function(
            "Bukin N.6",
            lambda x, y: 100 * np.sqrt(np.abs(y - 0.01 * x**2)) + 0.01 * np.abs(x + 10),
            ((-15.0, -5.0), (-3.0, 3.0)),
        ),
        Function("Matyas", lambda x, y: 0.26 * (x**2 + y**2) - 0.48 * x * y, _square(10), 2),
        Function("Lévi N.13", _levi, _square(10)),
        Function("Rosenbrock", lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2, ((-2.0, 2.0), (-1.0, 3.0)), 4),
    )
}


@dataclass(frozen=True)
class Original:
    """Where a table is published: a CSV file, or one in a zip archive, with the names of its columns if it has none.

    `sha256` is that of its cells, line by line: it does not depend on how they are packed.
    """

    url: str
    sha256: str
    member: str | None = None
    header: str | None = None


@dataclass(frozen=True)
class Table:
    """A table in a file: where it comes from, which column is the target, and which are to be left out.

    Nothing but the target is changed: categories and blanks are as in the original.
    """

    file: str
    target: str
    task: Literal["classification", "regression"]
    source: str
    leave_out: tuple[str, ...] = ()
    blank: str | None = None
    original: Original | None = None


TABLES = {
    "waveform": Table(
        "waveform_noise.csv.gz",
        "class",
        "classification",
        "UCI Waveform Database Generator (Version 2), waveform-+noise.data, doi:10.24432/C56014",
    ),
    "magic": Table(
        "magic04.csv.gz",
        "class",
        "classification",
        "UCI MAGIC Gamma Telescope, doi:10.24432/C52C8B",
        original=Original(
            "https://archive.ics.uci.edu/static/public/159/magic+gamma+telescope.zip",
            "2cb5aa16eb07a5c5160fea99b1db4f866a66433cd99ff4479b004a0438db0042",
            "magic04.data",
            "fLength,fWidth,fSize,fConc,fConc1,fAsym,fM3Long,fM3Trans,fAlpha,fDist,class",
        ),
    ),
    "credit_card": Table(
        "default_credit_card.csv.gz",
        "default payment next month",
        "classification",
        "UCI Default of Credit Card Clients, doi:10.24432/C55S3H",
        leave_out=("ID",),
    ),
    "bike_sharing": Table(
        "bike_sharing_hour.csv.gz",
        "cnt",
        "regression",
        "UCI Bike Sharing, hour.csv, doi:10.24432/C5W894",
        leave_out=("instant", "casual", "registered"),
        original=Original(
            "https://archive.ics.uci.edu/static/public/275/bike+sharing+dataset.zip",
            "3a20854f9bbea3af9ddffc7535b9b5aa7bcfb84f799c23cfbc1feb0565bb38f9",
            "hour.csv",
        ),
    ),
    "telco_churn": Table(
        "telco_churn.csv.gz",
        "Churn",
        "classification",
        "IBM sample data set, Telco customer churn",
        leave_out=("customerID",),
        blank=" ",
        original=Original(
            "https://raw.githubusercontent.com/IBM/telco-customer-churn-on-icp4d/master/data/Telco-Customer-Churn.csv",
            "6232056bf39bd2e0b8dcb06a0ee59665159be787100e83e8b1e99e99680445cc",
        ),
    ),
}


def load_table(name: str) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Features (a pandas frame) and target of one of `TABLES`: from the data folder, the cache or its source."""
    if name not in TABLES:
        raise ValueError(f"name must be one of {sorted(TABLES)}; got name={name!r}.")
    import pandas as pd

    table = TABLES[name]
    frame = pd.read_csv(_find(name, table), na_values=[table.blank] if table.blank else None)
    y = frame.pop(table.target).to_numpy()
    return frame.drop(columns=list(table.leave_out)), y


def _cache() -> Path:
    given = os.environ.get("COFRNET_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cofrnet"


def _find(name: str, table: Table) -> Path:
    """The file of a table; fetched into the cache where it is nowhere else."""
    return locate(name, table.file, table.source, "CSV with a header", table.original)


def locate(name: str, file: str, source: str, kind: str, original: Original | None = None) -> Path:
    """A file in the data folder or in the cache; else fetched, or an error that says what to get."""
    folder = os.environ.get("COFRNET_DATA")
    places = [Path(folder) / file] if folder else []
    places.append(_cache() / file)
    for path in places:
        if path.exists():
            return path
    why = ""
    if original is not None:
        try:
            return _fetch(original, places[-1])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            why = f" Fetching it from {original.url} failed ({error})."
    where = "COFRNET_DATA is not set" if folder is None else f"{places[0]} does not exist"
    raise FileNotFoundError(
        f"the data set {name!r} must be in the folder that COFRNET_DATA names; {where}.{why} Get it from its source "
        f"({source}), save it there as {file} ({kind}), and set COFRNET_DATA to the folder."
    )


def _fetch(original: Original, path: Path) -> Path:
    """Fetch a table, check its cells, and keep it as compressed CSV."""
    with urllib.request.urlopen(original.url, timeout=30) as answer:
        content = answer.read()
    if original.member is not None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(original.member)
    rows = list(csv.reader(io.StringIO(content.decode().strip())))
    header = rows.pop(0) if original.header is None else original.header.split(",")
    digest = hashlib.sha256("\n".join(map(",".join, rows)).encode()).hexdigest()
    if digest != original.sha256:
        raise ValueError(f"its cells must have the SHA-256 {original.sha256}; got {digest}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return write_atomically(path, gzip.compress(text.getvalue().encode(), mtime=0))


# ---------------------------------------------------------------------------------------------- texts and images


def imdb() -> tuple[list[str], NDArray[np.int64], list[str], NDArray[np.int64]]:
    """Reviews of films and whether they are good, 25 000 to train and 25 000 to test, as the data set divides them."""
    source = "Large Movie Review Dataset v1.0, ai.stanford.edu/~amaas/data/sentiment"
    path = locate("imdb", "imdb_reviews.parquet", source, "Parquet with the columns split, text and label")
    columns = _read_parquet(path, ["split", "text", "label"])
    train = np.array(columns["split"]) == "train"
    labels = np.array(columns["label"], dtype=np.int64)
    texts = [[t for t, own in zip(columns["text"], which, strict=True) if own] for which in (train, ~train)]
    return texts[0], labels[train], texts[1], labels[~train]


def quora(sample: Literal["natural", "balanced", "all"] = "natural") -> tuple[list[str], NDArray[np.int64]]:
    """Questions and whether they are insincere: about the natural share of them, half of them, or all there are."""
    source = "Kaggle, Quora Insincere Questions Classification, train.csv"
    kind = "Parquet with the columns question_text, target and sample"
    columns = _read_parquet(
        locate("quora", "quora_insincere_sample.parquet", source, kind), ["question_text", "target", "sample"]
    )
    if sample not in ("natural", "balanced", "all"):
        raise ValueError(f"sample must be 'natural', 'balanced' or 'all'; got sample={sample!r}.")
    kept = np.array([sample in ("all", own) for own in columns["sample"]])
    texts = [t for t, own in zip(columns["question_text"], kept, strict=True) if own]
    return texts, np.array(columns["target"], dtype=np.int64)[kept]


def _read_parquet(path: Path, columns: list[str]) -> dict[str, list[Any]]:
    from pyarrow import parquet

    found: dict[str, list[Any]] = parquet.read_table(path, columns=columns).to_pydict()
    return found


def word_vectors(
    path: str | os.PathLike[str] | None = None, most: int | None = None
) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors, (words, width), of a text file as GloVe and word2vec write them: plain, gz or zst.

    By default the GloVe vectors of the data folder. `most` reads the first words only, which are the most frequent.
    """
    from cofrnet.texts import read_vectors

    source = "Stanford GloVe 6B, nlp.stanford.edu/projects/glove"
    given = path or locate("glove", "glove.6B.50d.subset4811.txt.gz", source, "a word and its numbers on each line")
    return read_vectors(given, most)


def cifar10() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (50000, 32, 32, 3) and classes to train, (10000, 32, 32, 3) and classes to test, and names of classes."""
    from PIL import Image

    source = "CIFAR-10, cs.toronto.edu/~kriz/cifar.html"

    def sheet(name: str) -> NDArray[np.uint8]:
        kind = "a sheet of 100 times 100 images, lossless"
        with Image.open(locate("cifar10", f"cifar10/{name}.webp", source, kind)) as image:
            pixels = np.asarray(image.convert("RGB"))
        return pixels.reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)

    with np.load(locate("cifar10", "cifar10/labels.npz", source, "arrays train, test and names")) as file:
        train, test = (file[part].astype(np.int64) for part in ("train", "test"))
        names = [str(name) for name in file["names"]]
    return np.concatenate([sheet(f"train_{i}") for i in range(1, 6)]), train, sheet("test"), test, names


def caltech256() -> tuple[Path, Path]:
    """Folders of ten classes of Caltech-256 to train and to validate, 64 by 64 pixels, unpacked into the cache once."""
    file, source = "caltech256_10c_64px.tar", "Caltech-256, doi:10.22002/D1.20087, ten classes cut to 64 by 64 pixels"
    kind = "a tar archive of train/class/image.jpg and val/class/image.jpg"
    unpacked = _cache() / file.removesuffix(".tar")
    if not unpacked.exists():
        archive = locate("caltech256", file, source, kind)
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=unpacked.parent) as half, tarfile.open(archive) as content:
            content.extractall(Path(half) / "all", filter="data")
            (Path(half) / "all").rename(unpacked)
    return unpacked / "train", unpacked / "val"
