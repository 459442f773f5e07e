"""Files on disk: written whole or not at all, and read with suspicion.

A model file, ``*.cofrnet``, is one safetensors file: named tensors, and a JSON object under "cofrnet" in its metadata.
It holds numbers and text, never code. What a reader may rely on after `read_tensors`: the tensors have the dtypes and
shapes that they claim, all numbers are finite and those that were written, and the JSON is an object of a format that
this version knows.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofrnet.errors import ModelFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "FORMAT",
    "Fields",
    "digest_of",
    "read_tensors",
    "require_writable",
    "tensors_to_bytes",
    "write_atomically",
    "written_whole",
]

FORMAT = 1
MOST_HEADER = 64 * 2**20  # bytes


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise unless a file can be written there; before long work, so that nothing is lost."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file in it", str(path))
    there = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file; a folder is needed", str(there))
    if not os.access(there, os.W_OK):
        raise PermissionError(errno.EACCES, "must be a folder that can be written to", str(there))


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The name of a temporary file beside the path, which is renamed over it at the end.

    Whoever reads the path sees the old file or the new one, never a part; missing parent folders are made. Links are
    followed, and what is no ordinary file, such as a pipe, is written to as it is.
    """
    require_writable(path)
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # rights as any new file has them
        if path.exists():
            shutil.copymode(path, temporary)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the one that the caller knows
        raise


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """The path, with `content` in it: written whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def tensors_to_bytes(tensors: Mapping[str, NDArray[Any] | Tensor], about: Mapping[str, Any]) -> bytes:
    """The content of a model file."""
    import numpy as np
    from safetensors.numpy import save

    plain = {name: t if isinstance(t, np.ndarray) else t.detach().cpu().numpy() for name, t in tensors.items()}
    plain = {name: np.array(t, order="C") for name, t in plain.items()}
    digest = digest_of({name: t.tobytes() for name, t in plain.items()})
    return save(plain, {"cofrnet": json.dumps({"format": FORMAT, "digest": digest, **about}, allow_nan=False)})


def digest_of(contents: Mapping[str, bytes | bytearray]) -> str:
    """What tells whether the bytes of tensors have changed, by accident and not on purpose."""
    whole = hashlib.sha256()
    for name in sorted(contents):
        whole.update(contents[name])
    return whole.hexdigest()


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Tensors, as arrays, and JSON of a model file; whatever is wrong with it is a `ModelFileError` that says so.

    A path that cannot be opened raises the ``OSError`` that it is.
    """
    import numpy as np
    from safetensors import SafetensorError, deserialize

    path = Path(path)
    content = path.read_bytes()
    try:
        _check_header(content)
        raw = deserialize(content)  # type: ignore[no-untyped-call]
        text = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["cofrnet"]
        about = json.loads(text)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ModelFileError(
            f"{path} must be a model file that cofrnet wrote, whole; got something else "
            f"({str(error)[:200] or type(error).__name__}). Save the model again, or name another file."
        ) from error
    if not isinstance(about, dict) or not isinstance(about.get("format"), int) or isinstance(about["format"], bool):
        raise ModelFileError(f"{path} must say which format it has; it does not. Save the model again.")
    if about["format"] > FORMAT:
        raise ModelFileError(
            f"{path} must have format {FORMAT} or less; got format {about['format']}, of a later version. "
            "Update cofrnet to read it."
        )
    kinds: dict[str, Any] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
    tensors = {}
    for name, described in raw:
        if described["dtype"] not in kinds:
            raise ModelFileError(f"tensor {name!r} of {path} must be float32 or float64; got {described['dtype']}.")
        flat = np.frombuffer(bytearray(described["data"]), dtype=kinds[described["dtype"]])
        if not np.isfinite(flat).all():
            raise ModelFileError(f"tensor {name!r} of {path} must be finite; it holds NaN or infinity.")
        tensors[name] = flat.reshape(described["shape"])
    if about.pop("digest", None) not in (None, digest_of({name: described["data"] for name, described in raw})):
        raise ModelFileError(
            f"{path} must be as it was written; some of its numbers have changed since. Save or copy the model again."
        )
    return tensors, about


def _check_header(content: bytes) -> None:
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or not 2 <= size <= min(MOST_HEADER, len(content) - 8):
        raise ValueError("the header does not fit into the file")


class Fields:
    """A JSON object read with suspicion: every field is asked for by name and kind."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise ModelFileError(f"{where} must be an object; got {type(values).__name__}.")
        self.values, self.where = values, where

    def _fail(self, name: str, wanted: str) -> ModelFileError:
        found = repr(self.values.get(name, "nothing"))
        return ModelFileError(f"{self.where}, field {name!r}, must be {wanted}; got {found[:60]}.")

    def text(self, name: str) -> str:
        """A string."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self._fail(name, "text")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._fail(name, "true or false")
        return value

    def integer(self, name: str, least: int = 0, most: int = 2**40) -> int:
        """An integer within bounds."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._fail(name, f"an integer from {least} to {most}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self._fail(name, "a finite number")
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(
            isinstance(v, int | float) and not isinstance(v, bool) and _is_finite(v) for v in value
        ):
            raise self._fail(name, "a list of finite numbers")
        return tuple(map(float, value))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self._fail(name, "a list of texts")
        return tuple(value)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self._fail(name, "a list")
        return [Fields(v, f"{self.where}, {name}[{i}]") for i, v in enumerate(value)]

    def object(self, name: str) -> Fields:
        """An object."""
        return Fields(self.values.get(name), f"{self.where}, {name}")

    def any(self, name: str) -> Any:
        """Whatever is there; None where nothing is."""
        return self.values.get(name)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
