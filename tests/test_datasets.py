import os

import numpy as np
import pytest
from scipy.integrate import quad

from cofrnet.datasets import load_table, waveform, waveform_posterior


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


def test_a_missing_table_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("COFRNET_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"magic04\.csv\.gz does not exist\. Get it from its source \(UCI MAGIC"
    ):
        load_table("magic")
    monkeypatch.delenv("COFRNET_DATA")
    with pytest.raises(FileNotFoundError, match="COFRNET_DATA is not set"):
        load_table("magic")
    with pytest.raises(ValueError, match="name must be one of"):
        load_table("nothing")
