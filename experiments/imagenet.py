"""ImageNet: 1.28 million images of 1000 classes in folders, by the command line and as many processes as there are.

    torchrun --standalone --nproc-per-node=8 -m cofrnet fit imagenet/train -o imagenet.cofrnet \\
        --set size=224 --set widths=32,64,128,256,512 --set residual=0,2,2,3,1 --set max_epochs=90 \\
        --set batch_size=1024 --set on_error=skip --set checkpoint=imagenet.ckpt

    python -m experiments.imagenet --command            # prints it, with the settings below
    python -m experiments.imagenet --classes 1000       # the same path on a small folder that is made for it

The folder is ImageNet's own: one folder of JPEG files for each class. It is decoded in worker processes and never held
in memory; a run that is stopped goes on from its checkpoint. We have not run it on ImageNet itself.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cofrnet.nn import ImageSpec

IMAGES = 1_281_167
SHAPE: dict[str, Any] = {"widths": (32, 64, 128, 256, 512), "residual": (0, 2, 2, 3, 1), "stem_stride": 2}


def command(folder: str, processes: int, epochs: int, batch: int, size: int, out: str) -> list[str]:
    """The one command that trains on a folder."""
    stages = {name: ",".join(map(str, SHAPE[name])) for name in ("widths", "residual")}
    settings = {
        "size": size, **stages, "max_epochs": epochs, "batch_size": batch, "on_error": "skip",
        "checkpoint": f"{out}.ckpt",
    }  # fmt: skip
    sets = [part for k, v in settings.items() for part in ("--set", f"{k}={v}")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*launch, "-m", "cofrnet", "fit", folder, "-o", out, *sets]


def made(folder: Path, classes: int, each: int, seed: int = 0) -> None:
    """A folder of JPEG files laid out as ImageNet is: blots of a colour for each class, one file that is cut short."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(0, 256, (classes, 3))
    for c in range(classes):
        own = folder / f"n{c:08d}"
        own.mkdir(parents=True)
        for i in range(each):
            small = np.clip(colours[c] + rng.normal(0, 40, (8, 10, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(small).resize((500, 375)).save(own / f"{i}.JPEG", "jpeg")
    cut = folder / "n00000000" / "0.JPEG"
    cut.write_bytes(cut.read_bytes()[:900])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", action="store_true", help="print the command for ImageNet itself, and stop")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--each", type=int, default=1, help="images of a class")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    arguments = parser.parse_args()
    spec = ImageSpec(n_outputs=1000, **SHAPE)
    if arguments.command:
        print(" ".join(command("imagenet/train", 8, 90, 1024, 224, "imagenet.cofrnet")))
        print(f"{spec.n_parameters:,} parameters")
        return
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "train", str(Path(name) / "m.cofrnet")
        made(folder, arguments.classes, arguments.each)
        started = time.perf_counter()
        subprocess.run(
            command(str(folder), arguments.processes, arguments.epochs, arguments.batch, arguments.size, out),
            check=True,
        )
        count = arguments.classes * arguments.each
        print(f"{count} images, {arguments.epochs} epoch(s), {time.perf_counter() - started:.1f} s with starting up")
        tried = Path(name) / "tried"
        tried.mkdir()
        (folder / "n00000001" / "0.JPEG").rename(tried / "0.JPEG")
        subprocess.run([sys.executable, "-m", "cofrnet", "predict", out, str(tried), "-o", f"{name}/p.csv"], check=True)
        print(Path(name, "p.csv").read_text()[:120])


if __name__ == "__main__":
    main()
