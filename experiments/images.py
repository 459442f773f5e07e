"""Accuracy on CIFAR-10: convolutional ladders, the same network with ReLU, and the paper's ladders over pixels.

    python -m experiments.images                      # all, one after the other; hours on two cores
    python -m experiments.images --methods conv
    python -m experiments.images --check              # the saved models, measured again without training
    python -m experiments.images --gallery            # docs/images/gallery.png

Each is trained on the 50 000 training images and measured once on the 10 000 test images; settings were chosen on a
part of the training images. Results are appended to experiments/results/images.jsonl as they come, and the models of
convolutional ladders are kept beside it. A run that is stopped goes on from its checkpoint.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import cofrnet
from cofrnet import plot
from cofrnet.core import prepare
from cofrnet.datasets import cifar10
from cofrnet.estimators.image import CoFrNetImageClassifier
from cofrnet.nn import ChannelLadders, ImageCoFrNet

FOLDER = Path(__file__).parent / "results"


def relu_twin(model: ImageCoFrNet) -> ImageCoFrNet:
    """The network with its ladders replaced by normalisation and ReLU, and its head by a linear one."""
    for module in model.modules():
        if isinstance(getattr(module, "bend", None), ChannelLadders):
            module.bend = nn.Sequential(nn.BatchNorm2d(module.bend.channels), nn.ReLU())  # type: ignore[union-attr, arg-type]
            nn.init.kaiming_normal_(module.conv.weight)  # type: ignore[arg-type,union-attr]
    with torch.no_grad():
        model.head.head.zero_()
        for parameter in (*model.head.full.parameters(), model.head.head):  # type: ignore[union-attr]
            parameter.requires_grad_(False)  # ladders that add nothing: the linear path is left
    return model


class ReLUTwin(CoFrNetImageClassifier):
    """The classifier with a ReLU network of the same shape."""

    def _new_model(self, images: Any, generator: Any) -> Any:
        return relu_twin(super()._new_model(images, generator))  # type: ignore[arg-type]


def methods(epochs: int, folder: Path) -> dict[str, CoFrNetImageClassifier]:
    common: dict[str, Any] = {"random_state": 0, "verbose": 1}

    def checkpoint(name: str) -> dict[str, Any]:
        return {"checkpoint": folder / f"images-{name}.ckpt"}

    return {
        "conv": CoFrNetImageClassifier(max_epochs=epochs, **checkpoint("conv"), **common),
        "ReLU": ReLUTwin(max_epochs=epochs, **checkpoint("relu"), **common),
        "pixels D": CoFrNetImageClassifier("D", depth=3, max_epochs=20, **checkpoint("d"), **common),
        "pixels DL": CoFrNetImageClassifier("DL", depth=3, max_epochs=20, **checkpoint("dl"), **common),
    }


def gallery(images: Any, labels: Any) -> None:
    """Draw images and what their pixels add to the score of the class that the kept model chooses."""
    _, _, _, _, names = cifar10()
    explanation = cofrnet.load(FOLDER / "images-conv.cofrnet").explain_local(images)
    explanation = replace(explanation, output_names=tuple(names))
    plot.gallery(explanation, labels=labels, path=FOLDER.parents[1] / "docs" / "images" / "gallery.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["conv", "ReLU", "pixels D", "pixels DL"])
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--checkpoints", type=Path, default=FOLDER)
    parser.add_argument("--check", action="store_true", help="Measure the saved models again, without training.")
    parser.add_argument("--gallery", action="store_true", help="Draw what pixels do in 24 test images, and stop.")
    arguments = parser.parse_args()
    prepare()
    X, y, X_test, y_test, names = cifar10()
    if arguments.check:
        for file in sorted(FOLDER.glob("images-*.cofrnet")):
            accuracy = float(np.mean(cofrnet.load(file).predict(X_test) == y_test))
            print(f"{file.name}: accuracy {accuracy:.4f} on {len(y_test)} test images")
        return
    if arguments.gallery:
        gallery(X_test[::400][:24], np.array(names)[y_test[::400][:24]])
        return
    for name in arguments.methods:
        model = methods(arguments.epochs, arguments.checkpoints)[name]
        started = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - started
        started = time.perf_counter()
        accuracy = float(np.mean(model.predict(X_test) == y_test))
        learned = sum(p.numel() for p in model.model_.parameters() if p.requires_grad)
        result = {
            "method": name,
            "accuracy": accuracy,
            "epochs": model.n_iter_,
            "parameters": learned,
            "fit_seconds": round(seconds, 1),
            "predict_seconds": round(time.perf_counter() - started, 2),
            "loss": model.history_["loss"],
            "threads": torch.get_num_threads(),
            "precision": getattr(model.model_, "precision", "float32"),
            "cofrnet": cofrnet.__version__,
            "torch": torch.__version__,
        }
        with (FOLDER / "images.jsonl").open("a") as lines:
            lines.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
        if name == "conv":
            model.save(FOLDER / "images-conv.cofrnet")


if __name__ == "__main__":
    main()
