"""The command `tune`."""

from __future__ import annotations

import hashlib
import shlex
import sys
import warnings
from typing import Annotated, Any

import typer

from cofrnet.cli.fitting import (
    Categorical,
    Drop,
    Settings,
    Target,
    make_estimator,
    parameters_of,
)
from cofrnet.cli.output import print_json, print_table, say, tell
from cofrnet.cli.root import AsJson, Data, DataFormat, Device, Seed, Threads, app
from cofrnet.cli.rows import Task, read_training_rows

__all__ = ["tune"]

# What is tried of each parameter; the first value is the default of the estimators.
SPACE: dict[str, tuple[Any, ...]] = {
    "variant": ("S", "DL", "D"),
    "depth": (3, 1, 2, 4, 6),
    "n_ladders": (32, 16, 48, 96, 192),
    "ladders_per_feature": (8, 4, 16),
    "interactions": (0, 5, 15),
    "learning_rate": ("auto", 0.005, 0.01, 0.02, 0.05),
    "weight_decay": ("auto", 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "dropout": (0.0, 0.05, 0.1, 0.2),
}


@app.command()
def tune(
    data: Data,
    target: Target,
    trials: Annotated[int | None, typer.Option(min=1, help="Settings to try; 30 if no time is given.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time to spend.")] = None,
    storage: Annotated[
        str, typer.Option(help="A file, or a database URL; several machines may share it, and a run can be resumed.")
    ] = "tune.journal",
    folds: Annotated[int, typer.Option(min=2, max=20, help="Parts of the cross-validation.")] = 3,
    task: Annotated[Task, typer.Option(help="What is predicted; auto looks at the target.")] = Task.auto,
    settings: Settings = None,
    drop: Drop = None,
    categorical: Categorical = None,
    format: DataFormat = None,  # noqa: A002
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Search for better settings by cross-validation, and print the command that fits the best.

    The defaults are tried first. Stop it with Ctrl-C whenever you like; the same command goes on from there. Parameters
    given with --set stay as they are.
    """
    try:
        import optuna
    except ImportError:
        raise ImportError("tune needs optuna. Install it with: pip install 'cofrnet[tune]'") from None
    import numpy as np

    from cofrnet.core import prepare

    parameters_of(task.value, settings)  # what is wrong is told before long work
    read = read_training_rows(data, target, task, drop, categorical, None, format, told=False)
    table, y, chosen = read.table, read.y, read.task
    if chosen == "classification":
        classes, counts = np.unique(y, return_counts=True)
        if counts.min() < folds:
            raise ValueError(
                f"every class must have at least {folds} rows, one for each fold; {str(classes[counts.argmin()])!r} "
                f"has {counts.min()}. Leave its rows out, or say --folds 2."
            )
    prepare("table")
    fixed = make_estimator(chosen, settings, random_state=seed, device=device)
    held = {setting.partition("=")[0] for setting in settings or ()}
    space = {name: values for name, values in SPACE.items() if name not in held}
    study = _study(storage, target, space, _fingerprint(table, y, folds, space, fixed), seed)

    def objective(trial: Any) -> float:
        given = {name: trial.suggest_categorical(name, values) for name, values in space.items()}
        return _loss(fixed, given, table, y, folds, seed, trial)

    interrupted = _optimize(study, objective, trials if trials or minutes else 30, minutes)
    finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if finished:
        changed = {k: v for k, v in study.best_trial.params.items() if v != SPACE[k][0]}
        command = _command(data, target, task, settings, drop, categorical, format, seed, device, changed)
        _tell(study.best_trial, finished, space, chosen, folds, command, as_json, interrupted)
    elif not interrupted:
        raise ValueError("no setting was tried to the end; give it more time.")
    if interrupted:
        say("interrupted; the same command goes on from here.")
        raise typer.Exit(130)


def _fingerprint(table: Any, y: Any, folds: int, space: Any, fixed: Any) -> str:
    """What makes two searches the same: rows, folds, what is tried and what stays."""
    searched = (table.schema.to_string(), y.tolist(), folds, space, sorted(map(str, fixed.get_params().items())))
    digest = hashlib.sha256(repr(searched).encode())
    for batch in table.combine_chunks().to_batches():
        digest.update(batch.serialize())
    return digest.hexdigest()


def _study(storage: str, name: str, space: dict[str, tuple[Any, ...]], whose: str, seed: int) -> Any:
    """The search in the storage, a new one or what is there; the defaults are tried first."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        study = optuna.create_study(
            storage=_storage(storage),
            study_name=name,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8, constant_liar=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{storage} must be a journal of a search, or a new file; it is not ({error}).") from None
    known = study.user_attrs.get("rows")
    if known not in (None, whose):
        raise ValueError(f"{storage} must be of the same rows and options; it holds another search. Name another.")
    study.set_user_attr("rows", whose)
    done = [t for t in study.trials if t.state.is_finished()]
    if done:
        say(f"going on from {len(done)} trials in {storage}")
    if _default(study.trials, space) is None:
        study.enqueue_trial({name: values[0] for name, values in space.items()})
    return study


def _default(trials: Any, space: dict[str, tuple[Any, ...]]) -> Any:
    """The trial with the defaults, if it was finished or waits to be run."""
    from optuna.trial import TrialState

    wanted = {name: values[0] for name, values in space.items()}
    for trial in trials:
        waiting = trial.system_attrs.get("fixed_params") == wanted and trial.state == TrialState.WAITING
        if waiting or (trial.state == TrialState.COMPLETE and trial.params == wanted):
            return trial
    return None


def _tell(
    best: Any, finished: list[Any], space: Any, task: str, folds: int, command: str, as_json: bool, interrupted: bool
) -> None:
    loss = "log-loss" if task == "classification" else "unexplained variance (1 - R²)"
    default = _default(finished, space)
    if as_json:
        found = {"best": best.params, "loss": best.value, "of": loss, "trials": len(finished), "command": command}
        print_json(found | {"default": None if default is None else default.value, "interrupted": interrupted})
        return
    top = sorted(finished, key=lambda t: t.value or 0.0)[:5]
    rows = [(f"{t.value:.5g}", t.number, ", ".join(f"{k}={v}" for k, v in t.params.items())) for t in top]
    print_table((loss, "trial", "settings"), rows, f"The best of {len(finished)} settings, {folds} folds", left=3)
    if default is not None:
        tell(f"With the defaults it is {default.value:.5g}. To fit the best:")
    tell(f"\n{command}")


def _storage(where: str) -> Any:
    import optuna

    if "://" in where:
        return where
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(where))


def _optimize(study: Any, objective: Any, trials: int | None, minutes: float | None) -> bool:
    """Run the search; whether it was interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trying settings"), BarColumn(), TextColumn("{task.completed}, best {task.fields[best]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=trials, best="-")

        def done(study: Any, trial: Any) -> None:
            best = next((f"{study.best_value:.5g}" for t in study.trials if t.value is not None), "-")
            bar.update(task, advance=1, best=best)

        try:
            study.optimize(
                objective, n_trials=trials, timeout=None if minutes is None else 60 * minutes, callbacks=[done]
            )
        except KeyboardInterrupt:
            return True
    return False


def _loss(fixed: Any, given: dict[str, Any], table: Any, y: Any, folds: int, seed: int, trial: Any) -> float:
    """Mean loss over the folds."""
    import numpy as np
    import optuna
    from sklearn.base import clone
    from sklearn.model_selection import KFold, StratifiedKFold

    from cofrnet.training import FitInterruptedWarning

    classify = hasattr(fixed, "predict_proba")
    splitter = (StratifiedKFold if classify else KFold)(folds, shuffle=True, random_state=seed)
    losses: list[float] = []
    for rows, held in splitter.split(y, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", FitInterruptedWarning)
            try:
                fitted = clone(fixed).set_params(**given).fit(table.take(rows), y[rows])
            except FitInterruptedWarning:
                raise KeyboardInterrupt from None
        quality = fitted.quality(table.take(held), y[held])
        losses.append(quality["log-loss"].value if classify else 1 - quality["R²"].value)
        trial.report(float(np.mean(losses)), len(losses))
        if len(losses) < folds and trial.should_prune():
            raise optuna.TrialPruned
    return float(np.mean(losses))


def _command(
    data: str,
    target: str,
    task: Task,
    settings: Any,
    drop: Any,
    categorical: Any,
    format: Any,  # noqa: A002
    seed: int,
    device: str,
    changed: dict[str, Any],
) -> str:
    words = ["cofrnet", "fit", data, "--target", target]
    words += [] if task is Task.auto else ["--task", task.value]
    words += [] if format is None else ["--format", format.value]
    words += [] if seed == 0 else ["--seed", str(seed)]
    words += [] if device == "auto" else ["--device", device]
    for option, values in (("--drop", drop), ("--categorical", categorical), ("--set", settings)):
        words += [word for value in values or () for word in (option, value)]
    words += [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
    return shlex.join(words)
