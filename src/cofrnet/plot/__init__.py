"""Pictures of explanations: each function takes an explanation and returns matplotlib Axes. Nothing is computed here.

Every function takes `ax` to draw into (a new figure by default) and `path` to save to, the format by its suffix.
Colours are those of Okabe and Ito, which most colour-blind people tell apart, and blue to red for signed values.
"""

from cofrnet.plot.images import gallery, image
from cofrnet.plot.tables import curve, curves, importances, ladder, series, surface, waterfall
from cofrnet.plot.texts import text, word_bars, words

__all__ = [
    "curve",
    "curves",
    "gallery",
    "image",
    "importances",
    "ladder",
    "series",
    "surface",
    "text",
    "waterfall",
    "word_bars",
    "words",
]
