"""The scikit-learn estimator for images: `CoFrNetImageClassifier`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cofrnet.estimators.checks import checked_weight, is_number, is_whole, name_of, require, require_same_length
from cofrnet.estimators.classes import Classes
from cofrnet.estimators.fitting import Fitting, chosen_rows, device_named, require_both, unharmed
from cofrnet.estimators.pictures import Pictures
from cofrnet.estimators.pixels import as_files, as_images, goes_to_one, parts_of
from cofrnet.estimators.reporting_images import ReportingImages
from cofrnet.estimators.saving_images import SavingImages, sized
from cofrnet.explain.subject import evenly
from cofrnet.images import ImageError, decoded
from cofrnet.nn import CoFrNetSpec, ImageCoFrNet, ImageSpec, PixelCoFrNet
from cofrnet.training import (
    Callback,
    ImageFiles,
    Images,
    LogLoss,
    LoopOptions,
    Loss,
    MultinomialLogLoss,
    Rows,
    SkippedImagesWarning,
    crew,
)
from cofrnet.training.threads import look_after_forks

__all__ = ["CoFrNetImageClassifier"]

Floats = NDArray[np.floating[Any]]

STATISTICS = 512  # files that means and deviations of the channels are taken from
AT_ONCE = 64  # files that are read together
LARGE = 96  # pixels from which the first stage shrinks the image
SETTLED = 4096  # images in memory that running means and variances are taken from at the end


class CoFrNetImageClassifier(Classes, Pictures, ReportingImages, SavingImages, Fitting, ClassifierMixin, BaseEstimator):
    """Classifier of images made of continued fractions.

    Parameters
    ----------
    variant : {"conv", "D", "DL"}
        "conv": stages of convolutional ladders, the mean of each channel, and a CoFrNet; "D" and "DL": the paper's
        ladders over the pixels.
    widths : sequence of int
        Channels after each stage of "conv"; every stage but the first halves the image.
    residual : sequence of int, optional
        How often in each stage two more convolutional ladders follow, whose values are added; by default once in every
        other stage.
    stem_stride : int or "auto"
        The first stage shrinks the image by so much at once; "auto" is 2 for images of 96 pixels and more, else 1.
    depth : int
        Of the ladders.
    n_ladders : int
        Full ladders of the head, or of "DL".
    size : int or (int, int), optional
        Height and width that images of files are scaled to; by default those of the first.
    on_error : {"raise", "skip"}
        What becomes of files that cannot be read as images: an error that names the file, or they are left out while
        training, and told. Predictions are for all files, so there they are always an error.
    workers : int
        Processes that decode files.
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
    to_one_ : whether pixels of floats go to 1 (else to 255); None where training had no floats
    model_ : ImageCoFrNet or PixelCoFrNet
    history_, n_iter_, best_epoch_
    """

    to_one_: bool | None
    image_name_: str | None

    def __init__(
        self,
        variant: Literal["conv", "D", "DL"] = "conv",
        widths: Sequence[int] = (32, 64, 128, 256),
        residual: Sequence[int] | None = None,
        stem_stride: int | Literal["auto"] = "auto",
        depth: int = 1,
        n_ladders: int = 16,
        pool: Literal["mean", "max"] = "mean",
        size: int | tuple[int, int] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        workers: int = 2,
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
        self.stem_stride = stem_stride
        self.depth = depth
        self.n_ladders = n_ladders
        self.pool = pool
        self.size = size
        self.on_error = on_error
        self.workers = workers
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to images X and their labels y.

        X is an array (n, h, w) or (n, h, w, channels), a tensor (n, channels, h, w), a list of images, of PIL images or
        of files; or a folder with one folder of images for each class, whose names are then the labels; or a Parquet
        file with a column of bytes (`cofrnet.images.parquet.image_table` also gives its labels). Images of files are
        read anew in every epoch and never all held in memory. `X_val`, `y_val` are images to stop by; with
        `early_stopping` and without them a share of X is held out.
        """
        with unharmed(self, self.warm_start):
            return self._fit(X, y, sample_weight, X_val, y_val)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        self._check_parameters()
        again = self.warm_start and hasattr(self, "model_")
        self.target_name_ = name_of(y)
        files, y = as_files(X, y)
        if files is not None:
            return self._fit_files(files, y, sample_weight, X_val, y_val, again)
        require_both(X_val, y_val)
        images = as_images(X, self.to_one_ if again else None)
        targets = self._checked_targets(y, reset=not again)
        require_same_length(len(images), len(targets))
        weight = self._balance(targets, checked_weight(sample_weight, len(images)))
        rng, generator = self._random()
        rows, held = self._split(targets, rng, X_val is not None, weight)
        if not again:
            self.shape_ = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
            self.to_one_, self.image_name_ = goes_to_one(X), None
            self.model_ = self._new_model(images[torch.from_numpy(rows[evenly(len(rows), SETTLED)])], generator)
        self._require_shape(images)
        kept = chosen_rows(images, targets, weight, rows)
        shift = max(1, min(self.shape_[1:]) // 8) if self.augment else 0
        data = Images(kept.x, kept.y, kept.weight, shift, self.augment)
        validation = None if held is None else chosen_rows(images, targets, weight, held)
        if X_val is not None:
            given, t_val = as_images(X_val, self.to_one_), self._checked_targets(y_val, reset=False)
            require_same_length(len(given), len(t_val))
            self._require_shape(given)
            own = self._balance(t_val, None, like=targets)
            validation = chosen_rows(given, t_val, own, np.arange(len(t_val)))
        self._record(self._run(self.model_, data, validation, generator, self._options(len(data))))
        self._settle(data.x[torch.from_numpy(evenly(len(data), SETTLED))])
        return self

    def _random(self) -> tuple[np.random.RandomState, torch.Generator]:
        """What draws rows to hold out, and all else; the same in all processes that train together."""
        seed = crew().agreed(int(self._draws().randint(2**31 - 1)))
        return np.random.RandomState(seed), torch.Generator().manual_seed(seed)

    def _fit_files(self, files: list[Any], y: Any, sample_weight: Any, X_val: Any, y_val: Any, again: bool) -> Self:
        """Fit to images in files, as they are read."""
        require(sample_weight is None, "sample_weight", sample_weight, "None for files: they have no weights")
        require(self.class_weight is None, "class_weight", self.class_weight, "None for files: they have no weights")
        if not isinstance(X_val, str | Path):
            require_both(X_val, y_val)
        targets = self._checked_targets(y, reset=not again)
        require_same_length(len(files), len(targets))
        rng, generator = self._random()
        rows, held = self._split(targets, rng, given=X_val is not None)
        if not again:
            height, width = self._size(files)
            self.shape_, self.to_one_ = (3, height, width), None
            self.image_name_ = getattr(files[0], "column", None)
            self.model_ = self._new_model(self._some([files[i] for i in rows]), generator)
        data = self._files([files[i] for i in rows], targets[rows], self.augment, self.on_error)
        validation, skipped = None, dict[str, str]()
        if held is not None:
            found, places = self._read([files[i] for i in held], self.on_error, skipped)
            validation = Rows(found, torch.from_numpy(targets[held][places]))
        if X_val is not None:
            given, y_val = as_files(X_val, y_val)
            t_val = torch.from_numpy(self._checked_targets(y_val, reset=False))
            read = as_images(X_val) if given is None else self._read(given, "raise")[0]
            require_same_length(len(read), len(t_val))
            self._require_shape(read)
            validation = Rows(read, t_val)
        self._record(self._run(self.model_, data, validation, generator, self._options(len(data))))
        self._settle(self._some(data.files))
        self.skipped_ = skipped | data.skipped
        return self

    def _some(self, files: Sequence[Any]) -> Tensor:
        """Images of some of the files, evenly spread over all."""
        return self._read([files[i] for i in evenly(len(files), STATISTICS)], self.on_error)[0]

    @torch.no_grad()
    def _settle(self, images: Tensor) -> None:
        """Take running means and variances anew, over some images: those of training lag behind the weights."""
        layers: list[Any] = [own for own in self.model_.modules() if hasattr(own, "running_mean")]
        before = [layer.momentum for layer in layers]
        self.model_.train()
        for k, part in enumerate(images.tensor_split(max(1, len(images) // self.batch_size))):
            for layer in layers:
                layer.momentum = 1 / (k + 1)
            self.model_(part)
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
        self.model_.eval()

    def _size(self, files: Sequence[Any]) -> tuple[int, int]:
        """Height and width of the images: as asked for, or those of the first that can be read."""
        if self.size is not None:
            given: Any = self.size
            asked = tuple(given) if np.ndim(given) == 1 else (given, given)
            fit = len(asked) == 2 and all(
                isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= 1 for v in asked
            )
            require(fit, "size", self.size, "None, a number of pixels, or (height, width)")
            return int(asked[0]), int(asked[1])
        for file in files:
            try:
                pixels = decoded(file)
            except ImageError:
                if self.on_error == "raise":
                    raise
                continue
            return pixels.shape[0], pixels.shape[1]
        raise ValueError("X must have images that can be read; it has none. Look at the files.")

    def _files(self, files: list[Any], y: NDArray[Any], vary: bool, on_error: Any) -> ImageFiles:
        shift = max(1, min(self.shape_[1:]) // 8) if vary else 0
        remedy = ", or say on_error='skip'" if vary else ""
        return ImageFiles(
            files, torch.from_numpy(np.asarray(y)), self.shape_[1:], self.shape_[0], shift, vary, self.workers,
            on_error, remedy,
        )  # fmt: skip

    def _read(self, files: list[Any], on_error: Any, skipped: dict[str, str] | None = None) -> tuple[Tensor, Tensor]:
        """Images of some files, all in memory, and which of the files they are of.

        Those that cannot be read are told of where `skipped` is given, and are put there.
        """
        source = self._files(files, np.zeros(len(files)), False, on_error)
        with warnings.catch_warnings():
            if skipped is None:
                warnings.simplefilter("ignore", SkippedImagesWarning)
            images, places = zip(*source.read(parts_of(len(files), AT_ONCE)), strict=True)
        if skipped is not None:
            skipped.update(source.skipped)
        if not sum(map(len, images)):
            raise ValueError("X must have images that can be read; it has none. Look at the files.")
        return torch.cat(images), torch.cat(places)

    def _check_parameters(self) -> None:
        require(self.on_error in ("raise", "skip"), "on_error", self.on_error, "'raise' or 'skip'")
        require(is_whole(self.workers, 0), "workers", self.workers, "0 or more")
        require(self.variant in ("conv", "D", "DL"), "variant", self.variant, "'conv', 'D' or 'DL'")
        whole = {"depth": 0, "n_ladders": 1, "max_epochs": 1, "batch_size": 1, "checkpoint_every": 1}
        for name, least in whole.items():
            value = getattr(self, name)
            require(is_whole(value, least), name, value, f"an integer, {least} or more")
        for name, given in {"widths": self.widths, "residual": self.residual or (0,)}.items():
            listed = not isinstance(given, str) and np.ndim(given) == 1 and len(given) > 0
            fits = listed and all(isinstance(v, Integral | np.bool_) and v >= (name == "widths") for v in given)
            require(fits, name, getattr(self, name), "a list of whole numbers, one for each stage")
        patience, stride, rate, decay = self.n_iter_no_change, self.stem_stride, self.learning_rate, self.weight_decay
        require(patience is None or is_whole(patience, 1), "n_iter_no_change", patience, "None, or 1 or more")
        require(stride == "auto" or is_whole(stride, 1), "stem_stride", stride, "'auto', or 1 or more")
        require(rate == "auto" or is_number(rate, 0), "learning_rate", rate, "'auto' or positive and finite")
        require(decay == 0 or is_number(decay, 0), "weight_decay", decay, "0 or more and finite")
        smoothing, share = self.label_smoothing, self.validation_fraction
        require(smoothing == 0 or is_number(smoothing, 0, 1), "label_smoothing", smoothing, "0 or more and less than 1")
        require(isinstance(self.augment, bool | np.bool_), "augment", self.augment, "True or False")
        require(self.pool in ("mean", "max"), "pool", self.pool, "'mean' or 'max'")
        kinds = ("auto", "float32", "bfloat16")
        require(self.precision in kinds, "precision", self.precision, "'auto', 'float32' or 'bfloat16'")
        require(is_number(share, 0, 1), "validation_fraction", share, "between 0 and 1")
        device_named(self.device)

    def _new_model(self, images: Tensor, generator: torch.Generator) -> ImageCoFrNet | PixelCoFrNet:
        some = images.float()
        mean, deviation = some.mean((0, 2, 3)), some.std((0, 2, 3)).clamp_min(1.0)
        q = self._count_outputs()
        model: ImageCoFrNet | PixelCoFrNet
        if self.variant == "conv":
            widths = tuple(int(width) for width in self.widths)
            residual = self.residual if self.residual is not None else [i % 2 == 1 for i in range(len(widths))]
            stride = (1 if min(self.shape_[1:]) < LARGE else 2) if self.stem_stride == "auto" else self.stem_stride
            least = stride * 2 ** (len(widths) - 1)
            if min(self.shape_[1:]) < least:
                raise ValueError(
                    f"images must be at least {least} by {least} pixels for {len(widths)} stages; got "
                    f"{self.shape_[1]} by {self.shape_[2]}. Use fewer widths, or larger images."
                )
            spec = ImageSpec(
                n_outputs=q, in_channels=self.shape_[0], widths=widths, residual=tuple(map(int, residual)),
                stem_stride=stride, depth=self.depth, n_ladders=self.n_ladders, pool=self.pool,
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
        return sized(model, self.shape_)

    def _precision(self) -> Literal["float32", "bfloat16"]:
        if self.precision != "auto":
            return self.precision
        fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
        return "bfloat16" if fast else "float32"

    def _options(self, n: int) -> LoopOptions:
        batch = min(self.batch_size, max(16, n // 8))
        usual = 0.01 if self.variant == "conv" else 0.002
        rate = usual if self.learning_rate == "auto" else float(self.learning_rate)
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

    def _pixels(self, X: Any) -> Tensor:
        """Images in memory, of the size of those in training."""
        files, _ = as_files(X, None)
        images = as_images(X, self.to_one_) if files is None else self._read(files, "raise")[0]
        self._require_shape(images)
        return images

    def _sources(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Images as a list of what is to be read, or as a tensor; and their labels, which a folder may tell."""
        files, y = as_files(X, y)
        return (as_images(X, self.to_one_) if files is None else files), y

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, q), in parts of bounded memory."""
        check_is_fitted(self)
        look_after_forks()
        self.model_.eval()
        found = [torch.empty(0, self._count_outputs())]
        files, _ = as_files(X, None)
        with torch.no_grad():
            if files is not None:
                source = self._files(files, np.zeros(len(files)), False, "raise")
                parts = source.read(parts_of(len(files), AT_ONCE))
                found += [self.model_(part) for part, _ in parts]
            else:
                images = as_images(X, self.to_one_)
                self._require_shape(images)
                found += [self.model_(part) for part in images.split(self.model_.rows_at_once)]
        return torch.cat(found).double().numpy()
