"""Images: a step of training and predicting beside the same network with ReLU, and what ImageNet would take."""

import io
import time
from typing import Any

import numpy as np
import torch
from experiments.imagenet import IMAGES, SHAPE
from experiments.images import relu_twin
from PIL import Image

from benchmarks.measure import best_seconds
from cofrnet.core import prepare
from cofrnet.images import decoded
from cofrnet.nn import ImageCoFrNet, ImageSpec
from cofrnet.training import LoopOptions, MultinomialLogLoss, Rows, train

BATCH = 256


def networks(spec: ImageSpec, precision: Any) -> dict[str, ImageCoFrNet]:
    made = (ImageCoFrNet(spec, torch.Generator().manual_seed(0), precision) for _ in range(2))
    return {"ours": next(made), "other": relu_twin(next(made))}


def row(what: str, where: str, rates: dict[str, float], target: str = "") -> dict[str, Any]:
    return {
        "what": what,
        "where": where,
        "ours": f"{rates['ours']:.0f} images/s",
        "other": f"{rates['other']:.0f} images/s",
        "measured": f"{rates['other'] / rates['ours']:.2f}×",
        "target": target,
    }


def measure(quick: bool = False) -> list[dict[str, Any]]:
    prepare()
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (BATCH, 3, 32, 32), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, 10, BATCH))
    rows = []
    precisions = ["float32"]
    if getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)():
        precisions.append("bfloat16")
    for precision in precisions:
        models = networks(ImageSpec(n_outputs=10), precision)
        options = LoopOptions(1, BATCH, 1e-4, 0.0)

        def step(model: ImageCoFrNet, options: LoopOptions = options) -> None:
            train(model, MultinomialLogLoss(0.1), Rows(x, y), options=options)

        def predict(model: ImageCoFrNet) -> None:
            with torch.no_grad():
                model.eval()(x)

        for what, call in (("training, ReLU / ours", step), ("predicting, ReLU / ours", predict)):
            contenders = {name: lambda model=model, call=call: call(model) for name, model in models.items()}
            best = best_seconds(contenders, 4.0 if quick else 20.0, 3)
            where = f"32 x 32, default network, batch of {BATCH}, {precision}"
            rows.append(row(what, where, {name: BATCH / found for name, found in best.items()}, "≤ 1.5×"))
    return rows + imagenet(precisions[-1])


def imagenet(precision: str) -> list[dict[str, Any]]:
    """Steps at the size of ImageNet, and how fast JPEG files are decoded."""
    batch = 16
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (batch, 3, 224, 224), dtype=np.uint8))
    y = torch.arange(batch)
    models = networks(ImageSpec(n_outputs=1000, **SHAPE), precision)
    rates = {}
    for name, model in models.items():
        for _ in range(2):  # the second is warm
            started = time.perf_counter()
            train(model, MultinomialLogLoss(0.1), Rows(x, y), options=LoopOptions(1, batch, 1e-4, 0.0))
            rates[name] = batch / (time.perf_counter() - started)
    cores = torch.get_num_threads()
    hours = IMAGES / (rates["ours"] / cores) / 3600
    told = row("training, ReLU / ours", f"224 x 224, 1000 classes, batch of {batch}, {precision}", rates)
    memory = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((500, 375)).save(memory, "jpeg", quality=90)
    seconds = best_seconds({"decode": lambda: decoded(memory.getvalue(), (224, 224))}, 1.0)["decode"]
    return [
        told,
        {"what": "an epoch of ImageNet", "where": "core hours, by these steps", "ours": f"{hours:.0f} core hours"},
        {"what": "decoding JPEG", "where": "500 x 375 to 224 x 224, a core", "ours": f"{1 / seconds:.0f} images/s"},
    ]
