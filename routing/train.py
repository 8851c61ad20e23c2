"""Training of the heads: labelled prompts and an embedding function in, one .npz out. Knows nothing of tiers.

`train` is the whole of it; a command line gives it the embedder's `embed` and `id` and prints what it echoes:

    train(dataset.SHIPPED, embed, seed, out, embedder_id=..., command=..., echo=click.echo) -> Report

The same data, embeddings and seed give the same file, byte for byte on the same machine, libraries and thread count.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from routing.dataset import DifficultyRow, TaskRow, fingerprint, read_difficulty, read_tasks
from routing.errors import TrainingError
from routing.fit import Array, fit_logistic, fit_temperature
from routing.heads import Heads, Meta
from routing.report import Inputs, Report, measure
from routing.signals import FEATURES, GUESSES, extract

Embed = Callable[[list[str]], npt.NDArray[np.float32]]  # n texts -> (n, d), L2-normalised

L2_TASK = 0.1
CUE_BONUS = 1.5  # added to the logit of the task that the cue words speak for; why it isn't learned: docs/routing.md
L2_DIFFICULTY = 0.3
MIN_ROWS_PER_TASK = 20  # to learn from; below it a class is noise
MIN_HELD_OUT_PER_TASK = 5
MIN_DIFFICULTY_ROWS = 200


def train(
    data_dir: Path,
    embed: Embed,
    seed: int,
    out: Path | None,
    *,
    embedder_id: str,
    command: str = "",
    echo: Callable[[str], None] = lambda line: None,
) -> Report:
    """Fits the heads on the rows that aren't held out, measures them on those that are, and writes them to `out`.

    Multinomial logistic regression over the standardised embedding and features, for the tasks and for the two
    models' correctness. `out` None only measures. `seed` draws the bootstrap's samples; the fit itself is convex and
    needs none. Raises TrainingError for unreadable, malformed or too few rows and for an embed function that returns
    anything but n finite vectors of one length; nothing is written then.
    """
    task_rows, exam_rows = read_tasks(data_dir), read_difficulty(data_dir)
    tasks = _check_enough(task_rows, exam_rows)
    echo(f"{len(task_rows)} labelled prompts of {len(tasks)} tasks, {len(exam_rows)} graded questions")
    task_inputs = read_inputs([row.text for row in task_rows], embed)
    exam_inputs = read_inputs([row.text for row in exam_rows], embed)
    meta = Meta(
        embedder_id=embedder_id,
        dimension=task_inputs.vectors.shape[1],
        tasks=tasks,
        features=FEATURES,
        data=fingerprint(data_dir),
        command=command,
        seed=seed,
    )
    bounds = _bounds(task_inputs, task_rows)
    clipped = [Inputs(inputs.vectors, np.clip(inputs.features, *bounds)) for inputs in (task_inputs, exam_inputs)]
    full, plain = (
        np.hstack([_fit_tasks(x, task_rows, tasks), _fit_difficulty(z, exam_rows)]).astype(np.float32)
        for x, z in ((clipped[0].full, clipped[1].full), (clipped[0].plain, clipped[1].plain))
    )
    report = measure(Heads(meta, full, plain, bounds), task_rows, task_inputs, exam_rows, exam_inputs, seed)
    for line in report.lines():
        echo(line)
    if out is not None:
        Heads(msgspec.structs.replace(meta, measured=report.summary()), full, plain, bounds).save(out)
        echo(f"written to {out}")
    return report


def _check_enough(task_rows: Sequence[TaskRow], difficulty_rows: Sequence[DifficultyRow]) -> tuple[str, ...]:
    tasks = tuple(sorted({row.task for row in task_rows}))
    if len(tasks) < 2:
        raise TrainingError(f"at least two tasks are needed to tell apart; the data has {len(tasks)}")
    for task in tasks:
        held_out = sum(row.held_out for row in task_rows if row.task == task)
        learned = sum(row.task == task for row in task_rows) - held_out
        if learned < MIN_ROWS_PER_TASK or held_out < MIN_HELD_OUT_PER_TASK:
            raise TrainingError(
                f"task {task!r} has {learned} rows to learn from and {held_out} held out; "
                f"it needs {MIN_ROWS_PER_TASK} and {MIN_HELD_OUT_PER_TASK}"
            )
    if len(difficulty_rows) < MIN_DIFFICULTY_ROWS:
        raise TrainingError(f"{len(difficulty_rows)} graded questions; at least {MIN_DIFFICULTY_ROWS} are needed")
    for name in ("weak_right", "strong_right"):
        if len({getattr(row, name) for row in difficulty_rows if not row.held_out}) < 2:
            raise TrainingError(f"{name} is the same in every row: there is nothing to learn")
    return tasks


def read_inputs(texts: list[str], embed: Embed) -> Inputs:
    """What the heads read of each text. Raises TrainingError where the embedder doesn't give one vector a text."""
    features = np.stack([extract(text) for text in texts])
    order = np.argsort([len(text) for text in texts], kind="stable")  # batches of like lengths need little padding
    vectors = np.asarray(embed([texts[index] for index in order]), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise TrainingError(f"the embedder gave {vectors.shape} for {len(texts)} texts, or numbers that aren't finite")
    return Inputs(vectors[np.argsort(order)], features)


def _bounds(inputs: Inputs, rows: Sequence[TaskRow]) -> npt.NDArray[np.float32]:
    """(2, len(FEATURES)): where all but one in a thousand of the training rows lie, at either end."""
    seen = inputs.features[[not row.held_out for row in rows]]
    return np.percentile(seen, [0.1, 99.9], axis=0).astype(np.float32)


def _fit_tasks(inputs: Array, rows: Sequence[TaskRow], tasks: tuple[str, ...]) -> Array:
    """(d + 1, k) for raw inputs, calibrated on a fifth of the training rows that a first fit has not seen.

    The last len(GUESSES) inputs are not learned from: each gives its task a fixed bonus. A fit on the same sources
    would unlearn the cue words, which hold on other sources, in favour of the embedding, which does not.
    """
    bonus = _bonus(tasks)
    guesses, inputs = inputs[:, -len(GUESSES) :], inputs[:, : -len(GUESSES)]
    learn = np.array([not row.held_out for row in rows])
    labels = np.array([tasks.index(row.task) for row in rows])[learn]
    x, mean, scale = _standardised(inputs[learn])
    weights = _balancing(labels, len(tasks))
    calibrate = np.array([row.fold == 1 for row in rows])[learn]
    first = fit_logistic(
        x[~calibrate], labels[~calibrate], len(tasks), l2=L2_TASK, weights=_balancing(labels[~calibrate], len(tasks))
    )
    logits = x @ first[:-1] + first[-1] + guesses[learn] @ bonus
    temperature = fit_temperature(logits[calibrate], labels[calibrate])
    fitted = _folded(fit_logistic(x, labels, len(tasks), l2=L2_TASK, weights=weights), mean, scale)
    return np.vstack([fitted[:-1], bonus, fitted[-1:]]) / temperature


def _bonus(tasks: tuple[str, ...]) -> Array:
    """(len(GUESSES), k): from the guessed task to its logit. A task that no cues are written for gets none."""
    return np.array([[CUE_BONUS if guess == f"guess_{task}" else 0.0 for task in tasks] for guess in GUESSES])


def _fit_difficulty(inputs: Array, rows: Sequence[DifficultyRow]) -> Array:
    """(d + 1, 2): the logits of weak_right and strong_right for raw inputs."""
    learn = np.array([not row.held_out for row in rows])
    x, mean, scale = _standardised(inputs[learn])
    columns = []
    for name in ("weak_right", "strong_right"):
        labels = np.array([int(getattr(row, name)) for row in rows])[learn]
        fitted = fit_logistic(x, labels, 2, l2=L2_DIFFICULTY, weights=np.ones(len(labels)))
        columns.append(fitted[:, 1] - fitted[:, 0])
    return _folded(np.stack(columns, axis=1), mean, scale)


def _standardised(inputs: Array) -> tuple[Array, Array, Array]:
    """Inputs of mean 0 and variance 1; and the mean and scale. A constant column is left alone."""
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
    scale[scale < 1e-9] = 1.0
    return (inputs - mean) / scale, mean, scale


def _folded(fitted: Array, mean: Array, scale: Array) -> Array:
    """Weights for standardised inputs turned into weights for raw ones."""
    matrix = fitted[:-1] / scale[:, None]
    return np.vstack([matrix, fitted[-1] - mean @ matrix])


def _balancing(labels: npt.NDArray[np.int64], num_classes: int) -> Array:
    """Row weights, mean 1, by the inverse root of the class's size: rare classes count more, and not absurdly so."""
    counts = np.maximum(np.bincount(labels, minlength=num_classes), 1)
    weights = (1.0 / np.sqrt(counts))[labels]
    return np.asarray(weights / weights.mean(), np.float64)
