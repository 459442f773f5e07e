"""Training: the epoch loop, second-order least squares, and the ways to build a model up."""

from cofrnet.training.batches import Rows, Source, Stream
from cofrnet.training.checkpoints import Checkpoint, fingerprint
from cofrnet.training.constraints import monotone_projection
from cofrnet.training.files import ImageFiles, SkippedImagesWarning
from cofrnet.training.images import Images
from cofrnet.training.interrupts import FitInterruptedWarning, after_training
from cofrnet.training.least_squares import jacobian, least_absolute, least_squares, levenberg_marquardt
from cofrnet.training.loop import Callback, Decay, Epoch, LoopOptions, Trained, train
from cofrnet.training.losses import AbsoluteError, Huber, LogLoss, Loss, MultinomialLogLoss, SquaredError, evaluate
from cofrnet.training.progress import ProgressBar
from cofrnet.training.strategies import Boosted, boosted, rungwise
from cofrnet.training.together import Crew, crew, joined

__all__ = [
    "AbsoluteError",
    "Boosted",
    "Callback",
    "Checkpoint",
    "Crew",
    "Decay",
    "Epoch",
    "FitInterruptedWarning",
    "Huber",
    "ImageFiles",
    "Images",
    "LogLoss",
    "LoopOptions",
    "Loss",
    "MultinomialLogLoss",
    "ProgressBar",
    "Rows",
    "SkippedImagesWarning",
    "Source",
    "SquaredError",
    "Stream",
    "Trained",
    "after_training",
    "boosted",
    "crew",
    "evaluate",
    "fingerprint",
    "jacobian",
    "joined",
    "least_absolute",
    "least_squares",
    "levenberg_marquardt",
    "monotone_projection",
    "rungwise",
    "train",
]
