import os

import numpy as np
import pytest

from cofrnet import CoFrNetRegressor, load
from cofrnet.errors import ModelFileError
from cofrnet.files import write_atomically


def test_writes_and_replaces(tmp_path):
    path = write_atomically(tmp_path / "a" / "b.txt", b"one")
    assert path.read_bytes() == b"one"
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "b.txt", b"old")

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*b.txt'"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.txt"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    assert write_atomically(tmp_path / "ours", b"").stat().st_mode == ordinary.stat().st_mode


def test_permissions_of_what_is_replaced_are_kept(tmp_path):
    path = write_atomically(tmp_path / "a", b"one")
    path.chmod(0o600)
    assert write_atomically(path, b"two").stat().st_mode & 0o777 == 0o600


def test_numbers_that_have_changed_are_found(tmp_path):
    model = CoFrNetRegressor(n_ladders=2, ladders_per_feature=1, max_epochs=2, random_state=0)
    X = np.random.default_rng(0).normal(size=(100, 2))
    path = model.fit(X, X[:, 0]).save(tmp_path / "m.cofrnet")
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="some of its numbers have changed"):
        load(path)
