"""The scikit-learn estimator for images: `CoFrNetImageClassifier`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cofrnet.estimators.checks import checked_weight, name_of, require, require_same_length
from cofrnet.estimators.classes import Classes
from cofrnet.estimators.fitting import Fitting, device_named, unharmed
from cofrnet.estimators.saving_images import SavingImages
from cofrnet.nn import CoFrNetSpec, ImageCoFrNet, ImageSpec, PixelCoFrNet
from cofrnet.training import Callback, Images, LogLoss, LoopOptions, Loss, MultinomialLogLoss, Rows

__all__ = ["CoFrNetImageClassifier", "as_images"]

Floats = NDArray[np.floating[Any]]


class CoFrNetImageClassifier(Classes, SavingImages, Fitting, ClassifierMixin, BaseEstimator):
    """Classifier of images made of continued fractions.

    Parameters
    ----------
    variant : {"conv", "D", "DL"}
        "conv": stages of convolutional ladders, the mean of each channel, and a CoFrNet; "D" and "DL": the paper's
        ladders over the pixels.
    widths : sequence of int
        Channels after each stage of "conv"; every stage but the first halves the image.
    residual : sequence of bool, optional
        After which stages two more convolutional ladders follow, whose values are added; by default every other one.
    depth : int
        Of the ladders.
    n_ladders : int
        Full ladders of the head, or of "DL".
    pool : {"mean", "max"}
        How stages halve the image. With "mean" the network is a rational function of the pixels.
    augment : bool
        Whether images are shifted by up to an eighth of their size and flipped at random while training.
    label_smoothing : float
        Share of a label that is spread over all classes.
    precision : {"auto", "float32", "bfloat16"}
        Of the convolutions; "auto" takes half precision where the processor has instructions for it.
    max_epochs, batch_size, learning_rate, weight_decay, early_stopping, validation_fraction, n_iter_no_change, \
class_weight, warm_start, checkpoint, checkpoint_every, callbacks, device, random_state, verbose
        As for `CoFrNetClassifier`. Without `early_stopping`, which is the default here, all images are trained on.

    Attributes
    ----------
    classes_ : ndarray
    shape_ : tuple, (channels, height, width) of the images
    model_ : ImageCoFrNet or PixelCoFrNet
    history_, n_iter_, best_epoch_
    """

    def __init__(
        self,
        variant: Literal["conv", "D", "DL"] = "conv",
        widths: Sequence[int] = (32, 64, 128, 256),
        residual: Sequence[bool] | None = None,
        depth: int = 1,
        n_ladders: int = 16,
        pool: Literal["mean", "max"] = "mean",
        augment: bool = True,
        label_smoothing: float = 0.1,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
        max_epochs: int = 20,
        batch_size: int = 256,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 1.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.05,
        n_iter_no_change: int | None = None,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        callbacks: Iterable[Callback] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.variant = variant
        self.widths = widths
        self.residual = residual
        self.depth = depth
        self.n_ladders = n_ladders
        self.pool = pool
        self.augment = augment
        self.label_smoothing = label_smoothing
        self.precision = precision
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    # ------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to images X, (n, h, w) or (n, h, w, channels) as an array, (n, channels, h, w) as a tensor, and labels y.

        `X_val`, `y_val` are images to stop by; with `early_stopping` and without them a share of X is held out.
        """
        with unharmed(self):
            return self._fit(X, y, sample_weight, X_val, y_val)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        self._check_parameters()
        again = self.warm_start and hasattr(self, "model_")
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together; got one of them. Pass both, or neither.")
        self.target_name_ = name_of(y)
        images = as_images(X)
        targets = self._checked_targets(y, reset=not again)
        require_same_length(len(images), len(targets))
        weight = self._balance(targets, checked_weight(sample_weight, len(images)))
        rng = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        rows, held = self._split(targets, rng, given=X_val is not None)
        if not again:
            self.shape_ = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
            self.model_ = self._new_model(images[torch.from_numpy(rows)], generator)
        self._require_shape(images)
        kept = torch.from_numpy(rows)
        y_kept = torch.from_numpy(np.asarray(targets)[rows])
        scaled = None if weight is None else torch.from_numpy((weight[rows] / weight[rows].mean()).astype(np.float32))
        shift = max(1, min(self.shape_[1:]) // 8) if self.augment else 0
        data = Images(images if len(rows) == len(images) else images[kept], y_kept, scaled, shift, self.augment)
        validation = None
        if held is not None:
            validation = Rows(images[torch.from_numpy(held)], torch.from_numpy(np.asarray(targets)[held]))
        if X_val is not None:
            given, t_val = as_images(X_val), self._checked_targets(y_val, reset=False)
            require_same_length(len(given), len(t_val))
            self._require_shape(given)
            validation = Rows(given, torch.from_numpy(np.asarray(t_val)))
        self._record(self._run(self.model_, data, validation, generator, self._options(len(data))))
        return self

    def _check_parameters(self) -> None:
        require(self.variant in ("conv", "D", "DL"), "variant", self.variant, "'conv', 'D' or 'DL'")
        whole = {"depth": 0, "n_ladders": 1, "max_epochs": 1, "batch_size": 1, "checkpoint_every": 1}
        for name, least in whole.items():
            value: Any = getattr(self, name)
            require(isinstance(value, Integral) and value >= least, name, value, f"an integer, {least} or more")  # type: ignore[operator]
        rate, decay = self.learning_rate, self.weight_decay
        require(rate == "auto" or (isinstance(rate, Real) and rate > 0), "learning_rate", rate, "'auto' or positive")
        require(isinstance(decay, Real) and decay >= 0, "weight_decay", decay, "0 or more")
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "from 0 to 1")
        require(self.pool in ("mean", "max"), "pool", self.pool, "'mean' or 'max'")
        kinds = ("auto", "float32", "bfloat16")
        require(self.precision in kinds, "precision", self.precision, "'auto', 'float32' or 'bfloat16'")
        require(0 < self.validation_fraction < 1, "validation_fraction", self.validation_fraction, "between 0 and 1")
        device_named(self.device)

    def _new_model(self, images: Tensor, generator: torch.Generator) -> ImageCoFrNet | PixelCoFrNet:
        some = images[torch.linspace(0, len(images) - 1, min(len(images), 10_000)).long()].float()
        mean, deviation = some.mean((0, 2, 3)), some.std((0, 2, 3)).clamp_min(1.0)
        q = self._count_outputs()
        model: ImageCoFrNet | PixelCoFrNet
        if self.variant == "conv":
            widths = tuple(int(width) for width in self.widths)
            residual = self.residual if self.residual is not None else [i % 2 == 1 for i in range(len(widths))]
            spec = ImageSpec(
                n_outputs=q, in_channels=self.shape_[0], widths=widths, residual=tuple(map(bool, residual)),
                depth=self.depth, n_ladders=self.n_ladders, pool=self.pool,
            )  # fmt: skip
            model = ImageCoFrNet(spec, generator, self._precision())
        else:
            pixels = CoFrNetSpec(
                n_features=int(np.prod(self.shape_)), n_outputs=q, variant=self.variant, depth=self.depth,
                n_ladders=self.n_ladders, ladders_per_feature=1,
            )  # fmt: skip
            model = PixelCoFrNet(pixels, self.shape_, generator)
        model.mean.copy_(mean)
        model.deviation.copy_(deviation)
        return model

    def _precision(self) -> Literal["float32", "bfloat16"]:
        if self.precision != "auto":
            return self.precision
        fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
        return "bfloat16" if fast else "float32"

    def _options(self, n: int) -> LoopOptions:
        batch = min(self.batch_size, max(16, n // 8))
        rate = 0.01 if self.learning_rate == "auto" else float(self.learning_rate)
        patience = self.n_iter_no_change if self.early_stopping else None
        return LoopOptions(int(self.max_epochs), batch, rate, float(self.weight_decay), patience=patience)

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        _, metrics = super()._losses()
        kind = LogLoss if len(self.classes_) == 2 else MultinomialLogLoss
        return kind(self.label_smoothing), metrics

    # ------------------------------------------------------------------------------ predicting

    def _require_shape(self, images: Tensor) -> None:
        if tuple(images.shape[1:]) != self.shape_:
            channels, h, w = self.shape_
            raise ValueError(
                f"images must be {h} by {w} pixels of {channels} channel(s), as in training; got "
                f"{images.shape[2]} by {images.shape[3]} of {images.shape[1]}. Resize them."
            )

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, q), in parts of bounded memory."""
        check_is_fitted(self)
        images = as_images(X)
        self._require_shape(images)
        self.model_.eval()
        found = [torch.empty(0, self._count_outputs())]
        with torch.no_grad():
            found += [self.model_(part) for part in images.split(self.model_.rows_at_once)]
        return torch.cat(found).double().numpy()


def as_images(X: Any) -> Tensor:
    """Images as a tensor (n, channels, h, w) of uint8 or float32, pixels from 0 to 255.

    An array is (n, h, w) or (n, h, w, channels), a tensor (n, channels, h, w); floats in [0, 1] are scaled up, 16-bit
    integers down. Or a list of such images, or of PIL images.
    """
    if isinstance(X, Tensor):
        images = X
    else:
        if isinstance(X, list | tuple):
            X = [np.asarray(image) for image in X]
            shapes = {image.shape for image in X}
            if len(shapes) > 1:
                raise ValueError(f"images must have one size; got {sorted(shapes)[:3]}. Resize them.")
        array = np.asarray(X)
        if array.dtype.kind not in "uif" or array.ndim not in (3, 4):
            raise ValueError(
                "X must be images: numbers of shape (n, h, w) or (n, h, w, channels); "
                f"got {array.dtype} of shape {array.shape}."
            )
        images = torch.from_numpy(np.ascontiguousarray(array if array.ndim == 4 else array[..., None]))
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or 0 in images.shape[1:] or images.shape[1] > 4:
        raise ValueError(
            "X must be images of 1 to 4 channels and at least one pixel; "
            f"got shape (n, channels, h, w) = {tuple(images.shape)}."
        )
    if images.dtype == torch.uint8:
        return images
    if images.dtype in (torch.uint16, torch.int16, torch.int32, torch.int64):
        values = images.to(torch.float32)
        most = float(values.max()) if values.numel() else 0.0
        return values / 257 if most > 255 else values
    values = images.float()
    if not bool(torch.isfinite(values).all()):
        raise ValueError("images must be finite; got NaN or infinity. Mend or drop them.")
    return values * 255 if values.numel() and float(values.abs().max()) <= 1.0 else values
