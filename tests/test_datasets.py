import dataclasses
import functools
import gzip
import http.server
import io
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from cofrnet.datasets import (
    TABLES,
    caltech256,
    cifar10,
    image_folder,
    imdb,
    load_table,
    quora,
    waveform,
    waveform_posterior,
    word_vectors,
)


def test_waveform_is_as_breiman_describes_it():
    X, y = waveform(60_000, seed=0)
    assert X.shape == (60_000, 40)
    assert np.bincount(y) / len(y) == pytest.approx([1 / 3] * 3, abs=0.01)
    wave = np.maximum(6 - np.abs(np.arange(1, 22) - 11), 0)
    for label, shifts in enumerate([(0, 4), (0, -4), (4, -4)]):
        mean = sum(np.maximum(6 - np.abs(np.arange(1, 22) - 11 - shift), 0) for shift in shifts) / 2
        assert X[y == label, :21].mean(0) == pytest.approx(mean, abs=0.05)
    assert X[:, 21:].mean(0) == pytest.approx(np.zeros(19), abs=0.02)
    assert X[:, 21:].std(0) == pytest.approx(np.ones(19), abs=0.02)
    assert wave.max() == 6


def test_waveform_follows_its_seed():
    one, two, other = (waveform(10, seed=seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert waveform(10, noise_features=False, seed=0)[0].shape == (10, 21)
    with pytest.raises(ValueError, match="n_samples must be at least 1; got n_samples=0"):
        waveform(0)


def test_posterior_is_the_integral_over_the_mixture():
    X, _ = waveform(5, seed=3)
    waves = [np.maximum(6 - np.abs(np.arange(1, 22) - peak), 0) for peak in (11, 15, 7)]
    for row, posterior in zip(X[:, :21], waveform_posterior(X), strict=True):
        mass = [
            quad(lambda u, a=a, b=b, row=row: np.exp(-0.5 * ((row - u * a - (1 - u) * b) ** 2).sum() + 15), 0, 1)[0]
            for a, b in [(waves[0], waves[1]), (waves[0], waves[2]), (waves[1], waves[2])]
        ]
        assert posterior == pytest.approx(np.array(mass) / sum(mass), abs=1e-6)


def test_bayes_limit():
    X, y = waveform(200_000, seed=5)
    accuracy = (waveform_posterior(X).argmax(1) == y).mean()
    assert accuracy == pytest.approx(0.867, abs=0.003)


@pytest.mark.skipif("COFRNET_DATA" not in os.environ, reason="set COFRNET_DATA to a folder with the data files")
@pytest.mark.parametrize(
    ("name", "shape", "total"),
    [
        ("waveform", (5000, 40), 1653 + 2 * 1655),
        ("magic", (19_020, 10), 6688),
        ("credit_card", (30_000, 23), 6636),
        ("bike_sharing", (17_379, 13), 3_292_679),
        ("telco_churn", (7043, 19), 1869),
    ],
)
def test_tables_are_the_real_ones(name, shape, total):
    X, y = load_table(name)
    assert X.shape == shape
    counted = y.sum() if y.dtype.kind in "if" else np.isin(y, ["h", "Yes"]).sum()
    assert counted == total
    assert X.isna().sum().sum() == (11 if name == "telco_churn" else 0)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No data folder, an empty cache, and sources that do not answer."""
    monkeypatch.delenv("COFRNET_DATA", raising=False)
    monkeypatch.setenv("COFRNET_CACHE", str(tmp_path / "cache"))

    def refused(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refused)


def test_a_missing_table_says_what_to_do(nowhere, monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"COFRNET_DATA is not set\. Fetching it .* failed \(no network\)\."):
        load_table("magic")
    monkeypatch.setenv("COFRNET_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"waveform_noise\.csv\.gz does not exist\. Get it from its source \(UCI Waveform"
    ):
        load_table("waveform")
    with pytest.raises(ValueError, match="name must be one of"):
        load_table("nothing")


@pytest.mark.skipif("COFRNET_DATA" not in os.environ, reason="set COFRNET_DATA to a folder with the data files")
@pytest.mark.parametrize("name", ["magic", "bike_sharing", "telco_churn"])
def test_tables_are_fetched_checked_and_kept(name, monkeypatch, tmp_path):
    """From a real server here that has the archives as they are published."""
    wanted = load_table(name)
    table = TABLES[name]
    content = gzip.decompress((Path(os.environ["COFRNET_DATA"]) / table.file).read_bytes())
    if table.original.header is not None:
        content = content.partition(b"\n")[2]
    if table.original.member is not None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(table.original.member, content)
        content = archive.getvalue()
    (tmp_path / "published").write_bytes(content)
    (tmp_path / "altered").write_bytes(content.replace(b"1", b"2", 1) if name == "telco_churn" else content[:-3])
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for file in ("altered", "published"):
            address = f"http://127.0.0.1:{server.server_port}/{file}"
            here = dataclasses.replace(table, original=dataclasses.replace(table.original, url=address))
            monkeypatch.setitem(TABLES, name, here)
            monkeypatch.delenv("COFRNET_DATA", raising=False)
            monkeypatch.setenv("COFRNET_CACHE", str(tmp_path / "cache"))
            if file == "altered":
                with pytest.raises(FileNotFoundError, match="failed"):
                    load_table(name)
                assert not (tmp_path / "cache").exists()
            else:
                X, y = load_table(name)
        server.shutdown()
    pd.testing.assert_frame_equal(X, wanted[0])
    np.testing.assert_array_equal(y, wanted[1])
    load_table(name)  # from the cache: the server is gone


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


has_data = pytest.mark.skipif(
    "COFRNET_DATA" not in os.environ, reason="set COFRNET_DATA to a folder with the data files"
)


@has_data
def test_texts_are_the_real_ones():
    train, y_train, test, y_test = imdb()
    assert (len(train), len(test), y_train.sum(), y_test.sum()) == (25_000, 25_000, 12_500, 12_500)
    assert not set(train[:100]) & set(test[:100])
    counts = {
        sample: (len(texts), int(y.sum())) for sample in ("natural", "balanced", "all") for texts, y in [quora(sample)]
    }
    assert counts == {"natural": (20_877, 1328), "balanced": (3930, 1965), "all": (24_807, 3293)}
    with pytest.raises(ValueError, match="sample must be"):
        quora("some")


@has_data
def test_vectors_of_words_are_the_real_ones():
    words, vectors = word_vectors()
    assert (len(words), vectors.shape) == (4811, (4811, 50))
    assert words[0] == "the"
    place = {word: i for i, word in enumerate(words)}
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[place["good"]] @ unit[place["great"]] > unit[place["good"]] @ unit[place["seven"]]
    assert word_vectors(most=7)[1].shape == (7, 50)


def test_files_of_words(tmp_path):
    (tmp_path / "a.txt").write_text("2 3\nu 1 2 3\né 4 5 6\n")
    words, vectors = word_vectors(tmp_path / "a.txt")
    assert words == ["u", "é"]
    np.testing.assert_array_equal(vectors, [[1, 2, 3], [4, 5, 6]])
    (tmp_path / "b.txt").write_text("u 1 2\nv 1\n")
    with pytest.raises(ValueError, match="line of 'v' does not"):
        word_vectors(tmp_path / "b.txt")
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(ValueError, match="it has none"):
        word_vectors(tmp_path / "c.txt")


@has_data
def test_images_are_the_real_ones():
    X_train, y_train, X_test, y_test, names = cifar10()
    assert (X_train.shape, X_test.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert np.bincount(y_train).tolist() == [5000] * 10
    assert np.bincount(y_test).tolist() == [1000] * 10
    assert names[:2] == ["airplane", "automobile"]
    assert (X_train / 255).mean((0, 1, 2)) == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-3)


def test_what_is_missing_is_named(nowhere):
    for load, file in ((imdb, "imdb_reviews"), (quora, "quora_"), (word_vectors, "glove"), (cifar10, "labels.npz")):
        with pytest.raises(FileNotFoundError, match=file):
            load()


def test_folders_of_images(tmp_path):
    for name in ("b/2.JPEG", "b/deeper/1.png", "a/x.webp", "a/notes.txt", "a/.hidden.png", ".git/y.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files, labels, names = image_folder(tmp_path)
    assert names == ["a", "b"]
    assert [str(file.relative_to(tmp_path)) for file in files] == ["a/x.webp", "b/2.JPEG", "b/deeper/1.png"]
    assert labels.tolist() == [0, 1, 1]
    (tmp_path / "c").mkdir()
    with pytest.raises(ValueError, match="'c' has none"):
        image_folder(tmp_path)
    with pytest.raises(ValueError, match="no folders"):
        image_folder(tmp_path / "c")
    with pytest.raises(FileNotFoundError, match="must be a folder"):
        image_folder(tmp_path / "d")


@has_data
def test_the_folder_of_images_is_the_real_one(tmp_path, monkeypatch):
    monkeypatch.setenv("COFRNET_CACHE", str(tmp_path))
    for _ in range(2):  # the second time from the cache
        train, val = caltech256()
        assert [len(image_folder(folder)[0]) for folder in (train, val)] == [2098, 523]
    assert image_folder(train)[2][:3] == ["airplane", "bathtub", "billiards"]
    assert [path.name for path in tmp_path.iterdir()] == ["caltech256_10c_64px"]
