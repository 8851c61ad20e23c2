"""What trained heads are worth on rows they have not seen, as numbers and as lines to print. Knows no files."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from routing.cues import guess
from routing.dataset import DifficultyRow, TaskRow
from routing.fit import Array
from routing.heads import Heads, Judgement
from routing.metrics import Bools, Estimate, Labels, apgr, calibration_error, estimate, f1_per_class, macro_f1

Row = TypeVar("Row", TaskRow, DifficultyRow)


class ClassScore(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    rows: int  # held out
    f1: float
    f1_plain: float  # by features alone


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Estimates are (value, low, high) with a 95 % interval by bootstrap over the held-out rows."""

    macro_f1: Estimate
    macro_f1_plain: Estimate  # without an embedding
    macro_f1_cues: Estimate  # the hand-written cue words, for comparison
    calibration_error: float
    apgr: dict[str, Estimate]  # source -> the difficulty prior's; 0.5 is what chance gives
    apgr_length: dict[str, Estimate]  # the longest prompts to the strong model, for comparison
    per_class: tuple[ClassScore, ...]

    def summary(self) -> dict[str, float]:
        """What the head's file remembers."""
        numbers = {"macro_f1": self.macro_f1[0], "macro_f1_without_embedding": self.macro_f1_plain[0]}
        numbers |= {f"apgr_{source}": value[0] for source, value in self.apgr.items()}
        return {name: round(value, 4) for name, value in numbers.items()}

    def lines(self) -> list[str]:
        width = max(len(score.task) for score in self.per_class)
        return [
            f"task, macro-F1 on held-out rows: {_show(self.macro_f1)}; without an embedding "
            f"{_show(self.macro_f1_plain)}; cue words alone {_show(self.macro_f1_cues)}",
            f"task, calibration error: {self.calibration_error:.3f}",
            *(
                f"difficulty, APGR on held-out {source}: {_show(value)}; by length {_show(self.apgr_length[source])}; "
                "by chance 0.500"
                for source, value in self.apgr.items()
            ),
            f"{'task':{width}}  rows    F1  without embedding",
            *(f"{s.task:{width}}  {s.rows:4}  {s.f1:.3f}  {s.f1_plain:.3f}" for s in self.per_class),
        ]


class Inputs(msgspec.Struct, frozen=True):
    """What the heads read of n prompts: `vectors` (n, d), `features` (n, len(FEATURES)), both float32."""

    vectors: npt.NDArray[np.float32]
    features: npt.NDArray[np.float32]

    @property
    def full(self) -> Array:
        return np.hstack([self.vectors, self.features]).astype(np.float64)

    @property
    def plain(self) -> Array:
        return self.features.astype(np.float64)

    def judged_by(self, heads: Heads, *, with_embedding: bool = True) -> list[Judgement]:
        pairs = zip(self.features, self.vectors, strict=True)
        return [heads.judge(features, vector if with_embedding else None) for features, vector in pairs]


def measure(
    heads: Heads,
    tasks: Sequence[TaskRow],
    task_inputs: Inputs,
    exams: Sequence[DifficultyRow],
    exam_inputs: Inputs,
    seed: int,
) -> Report:
    """Scores heads on those of the rows that are held out; the inputs are in the order of the rows."""
    rows, inputs = _unseen(tasks, task_inputs)
    judged = inputs.judged_by(heads)
    truth = _numbers(heads, [row.task for row in rows])
    by_full = _numbers(heads, [judgement.task for judgement in judged])
    by_plain = _numbers(heads, [judgement.task for judgement in inputs.judged_by(heads, with_embedding=False)])
    by_cues = _numbers(heads, [guess(row.text) or "open_qa" for row in rows])
    num_tasks = len(heads.tasks)

    def score(guessed: Labels) -> Estimate:
        return estimate(lambda i: macro_f1(truth[i], guessed[i], num_tasks), len(truth), seed)

    f1, f1_plain = f1_per_class(truth, by_full, num_tasks), f1_per_class(truth, by_plain, num_tasks)
    graded, graded_inputs = _unseen(exams, exam_inputs)
    hardness = np.array([1 - judgement.weak_right for judgement in graded_inputs.judged_by(heads)])
    return Report(
        macro_f1=score(by_full),
        macro_f1_plain=score(by_plain),
        macro_f1_cues=score(by_cues),
        calibration_error=calibration_error(np.array([j.confidence for j in judged]), truth == by_full),
        apgr=_apgr_by_source(graded, hardness, seed),
        apgr_length=_apgr_by_source(graded, np.array([float(len(row.text)) for row in graded]), seed),
        per_class=tuple(
            ClassScore(task=task, rows=int((truth == i).sum()), f1=float(f1[i]), f1_plain=float(f1_plain[i]))
            for i, task in enumerate(heads.tasks)
        ),
    )


def _unseen(rows: Sequence[Row], inputs: Inputs) -> tuple[list[Row], Inputs]:
    kept = [index for index, row in enumerate(rows) if row.held_out]
    return [rows[index] for index in kept], Inputs(inputs.vectors[kept], inputs.features[kept])


def _numbers(heads: Heads, tasks: Sequence[str]) -> Labels:
    """Indices of the tasks; -1 for one that the heads don't know."""
    indices = {task: index for index, task in enumerate(heads.tasks)}
    return np.array([indices.get(task, -1) for task in tasks])


def _apgr_by_source(rows: Sequence[DifficultyRow], hardness: Array, seed: int) -> dict[str, Estimate]:
    results: dict[str, Estimate] = {}
    weak, strong = np.array([row.weak_right for row in rows]), np.array([row.strong_right for row in rows])
    for source in sorted({row.source for row in rows}):
        of_source = np.flatnonzero([row.source == source for row in rows])
        results[source] = _apgr(hardness[of_source], weak[of_source], strong[of_source], seed)
    return results


def _apgr(hardness: Array, weak: Bools, strong: Bools, seed: int) -> Estimate:
    return estimate(lambda i: apgr(hardness[i], weak[i], strong[i]), len(hardness), seed)


def _show(value: Estimate) -> str:
    return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"
