"""The interactive page of a fitted classifier of texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from cofrnet.estimators.checks import require_same_length
from cofrnet.explain.subject import evenly, to_browse
from cofrnet.files import write_atomically
from cofrnet.nn import BagCoFrNet
from cofrnet.nn.bags import bag_sums
from cofrnet.texts.tokens import LONGEST_TAG, kinds_of_characters

__all__ = ["ReportingTexts"]

EXPLAINED = 5000  # texts that importances are taken over
TEXTS, WRONG = 200, 80  # texts to browse, and how many of them are those the model is most wrong about


class ReportingTexts:
    """What makes a fitted classifier of texts a page."""

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, title: str | None = None) -> Path:
        """Write a self-contained, interactive page about the model, and return its path.

        With texts X it explains the model on them and lets them be browsed; with their labels y it also says how good
        the model is, so these should be texts that it was not fitted to. In the page one can type a text and see score
        and words change.
        """
        from cofrnet.report.texts import html_of_texts

        return write_atomically(path, html_of_texts(self._page(X, y, title)).encode("utf-8", "replace"))

    def _page(self, X: Any, y: Any, title: str | None) -> Any:
        from cofrnet.report.texts import TextPage

        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y must come with its texts X; got X=None. Pass both.")
        me: Any = self
        texts: Any = None if X is None else me._texts(X)
        if y is not None:
            require_same_length(len(texts), len(y))
        live, note = self._live(texts)
        some = None if texts is None else [texts[i] for i in evenly(len(texts), EXPLAINED)]
        named = f" of {me.target_name_}" if me.target_name_ else ""
        return TextPage(
            title=title or f"Classification{named}",
            facts=self._facts(),
            overall=me.explain_global(some),
            classes=[str(name) for name in me.classes_],
            live=live,
            live_note=note,
            quality=None if y is None else me.quality(texts, y),
            history=getattr(self, "history_", None),
            **({} if texts is None else self._browsed(texts, y)),
        )

    def _facts(self) -> list[tuple[str, str]]:
        me: Any = self
        spec, known = me.model_.spec, me.vocabulary_
        what = "vectors of words" if me.input == "vectors" else "words and pairs of words"
        ladders = f"{getattr(spec, 'total_ladders', spec.n_ladders)} continued fractions of depth {spec.depth}"
        facts = [
            ("Model", f"CoFrNet: {ladders} over {what}, and a linear part"),
            ("Parameters", f"{spec.n_parameters:,}"),
            ("Vocabulary", f"{len(known.words):,} words and {len(known.pairs):,} pairs of {known.n_texts:,} texts"),
        ]
        if spec.n_members > 1:
            facts.append(("Members", f"{spec.n_members}, averaged"))
        return facts

    def _browsed(self, texts: list[str], y: Any) -> dict[str, Any]:
        """Texts to browse: those that are most wrong, and some of all."""
        me: Any = self
        total = len(texts)
        loss = None if y is None else me._losses_of(texts, y)
        some = to_browse(total, TEXTS, loss, WRONG)
        part = [texts[i] for i in some]
        return {
            "explanation": me.explain_local(part),
            "index": some.tolist(),
            "predicted": [str(label) for label in me.predict(part)],
            "actual": None if y is None else [str(label) for label in np.asarray(y)[some]],
            "loss": None if loss is None else loss[some].tolist(),
            "total": total,
        }

    def _live(self, texts: list[str] | None) -> tuple[Any, str]:
        """The model as the page needs it, and what is to be said of it."""
        from cofrnet.report.texts import LiveModel

        me: Any = self
        model, known = me.model_, me.vocabulary_
        if not isinstance(model, BagCoFrNet):
            return None, "The live box is for models of bags of words; this one reads vectors of words in their order."
        if me.tokenizer is not None or known.n_buckets:
            return None, "The live box needs the own tokenizer and a vocabulary without buckets; this model has others."
        full: Any = model.cofrnet.full
        m, q = model.spec.n_members, model.spec.n_outputs
        weight, bias = (part.detach().float().numpy() for part in full.full_rungs())
        ladders = {
            "weight": weight.reshape(m, -1, full.n_ladders, full.n_features),
            "bias": bias.reshape(m, -1, full.n_ladders),
        }
        for name in ("head", "linear", "intercept"):
            ladders[name] = getattr(model.cofrnet, name).detach().float().numpy().reshape(m, q, -1)
        embedding, straight = (part.detach().float().numpy() for part in (model.embedding, model.linear))
        live = LiveModel(
            words=known.words,
            pairs=known.pairs,
            weights=me.weights_,
            embedding=embedding,
            straight=straight,
            strength=me.statistics_[1].max(1) + known.texts / known.n_texts * me.weights_ * np.abs(embedding).max(1),
            ladders=ladders,
            smooth=full.pole == "smooth",
            epsilon=float(full.epsilon),
            characters=kinds_of_characters(),
            longest_tag=LONGEST_TAG,
        )
        live = live.narrowed(np.sqrt(known.texts) * me.weights_)
        return live, self._live_error(live, texts)

    def _live_error(self, live: Any, texts: list[str] | None) -> str:
        """How far the page's scores are from the model's, where its numbers are rounded."""
        if live.rounded[0].dtype == np.float32 and live.kept is None:
            return ""
        said = "Its numbers are rounded to fit into the page"
        if not texts:
            return f"{said}."
        me: Any = self
        model, x = me.model_, me._encoded([texts[i] for i in evenly(len(texts), TEXTS)])
        with torch.no_grad():
            z, straight = (bag_sums(x, torch.from_numpy(part).to(model.linear.dtype)) for part in live.near)
            found = model.cofrnet.member_scores(z).mean(1) + straight
            error = (found - model(x)).abs()
        return f"{said}: on these texts its scores are off by {float(error.max()):.1g} at most."
