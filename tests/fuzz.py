"""Coverage-guided fuzzing of model files: ``python -m tests.fuzz [-runs=5000]``; options are those of libFuzzer.

It starts from the kept model file. A file may be loaded or refused with `ModelFileError`; whatever else happens, a
crash, a hang or a huge allocation among it, ends the run with an error and leaves the file behind.
"""

import sys
import tempfile
from pathlib import Path

import atheris
import pandas as pd

with atheris.instrument_imports(include=["cofrnet.estimators", "cofrnet.files", "cofrnet.nn"]):
    from cofrnet import estimators
    from cofrnet.errors import ModelFileError

SEED = Path(__file__).parent / "models" / "format-1.cofrnet"
FOLDER = Path(tempfile.mkdtemp())
PATH = FOLDER / "fuzzed.cofrnet"


def load(content: bytes) -> None:
    PATH.write_bytes(content)
    try:
        model = estimators.load(PATH)
    except ModelFileError:
        return
    model.summary()  # what is loaded is whole
    row = {column.name: ["u"] if hasattr(column, "levels") else [1.0] for column in model.encoder_.columns}
    if len(row) == len(model.encoder_.columns) and not any(name == "" for name in row):
        model.predict(pd.DataFrame(row))


def mutate(content: bytes, most: int, seed: int) -> bytes:
    """libFuzzer's mutation of the header, which says what is in the file, or of all of it; its length stays true."""
    size = int.from_bytes(content[:8], "little")
    if seed % 4 == 0 or len(content) < 8 or size > len(content) - 8:
        return atheris.Mutate(content, most)
    header = atheris.Mutate(content[8 : 8 + size], max(size + 64, 1))
    return (len(header).to_bytes(8, "little") + header + content[8 + size :])[:most]


if __name__ == "__main__":
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(SEED.read_bytes())
    options = ["-runs=5000", "-seed=1", f"-max_len={2 * SEED.stat().st_size}", "-timeout=10", "-rss_limit_mb=4096"]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={FOLDER}/", *sys.argv[1:], str(corpus)], load, custom_mutator=mutate
    )
    atheris.Fuzz()
