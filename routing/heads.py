"""The trained heads: a small matrix that reads an embedding and the text features. Knows no tiers, does no training.

It gives the kind of work a prompt asks for, and a prior of its difficulty: how likely a weak and a strong model would
answer it correctly. A second matrix reads the features alone, for the times without an embedding.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from routing.errors import HeadMismatch
from routing.signals import FEATURES, FOREIGN_SHARE, Features
from routing.vector import Vector

SHIPPED = Path(__file__).parent / "data" / "heads.npz"

NORM_TOLERANCE = 0.02  # of the squared length of an embedding: half precision and quantised ones pass

Matrix = npt.NDArray[np.float32]


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Where a head comes from and what it fits."""

    embedder_id: str
    dimension: int  # of the embedding
    tasks: tuple[str, ...]
    features: tuple[str, ...]
    data: str  # digest of the training data
    command: str
    seed: int
    measured: dict[str, float] = {}  # on the held-out rows


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the heads make of one prompt."""

    task: str
    confidence: float  # probability of the task, as far as the training data speaks for it
    weak_right: float  # probability that a weak model answers well enough
    strong_right: float  # the same of a strong one; never below weak_right
    used_embedding: bool


class Heads:
    """`full` is (dimension + len(FEATURES) + 1, len(tasks) + 2), `plain` the same without the dimensions; float32.

    The last row is the bias, the last two columns are the logits of weak_right and strong_right; the scaling of the
    inputs and the calibration are folded in. `bounds` (2, len(FEATURES)) is the range of each feature in the training
    data: what lies outside is taken for its edge, because a linear head knows nothing out there and says it loudly.
    Without an embedder (`use_embedding` false) only `plain` is read.
    """

    def __init__(self, meta: Meta, full: Matrix, plain: Matrix, bounds: Matrix, *, use_embedding: bool = True) -> None:
        columns = len(meta.tasks) + 2
        size = len(FEATURES)
        wanted = (meta.dimension + size + 1, columns), (size + 1, columns), (2, size)
        if meta.features != FEATURES or (full.shape, plain.shape, bounds.shape) != wanted:
            raise HeadMismatch("the head was trained on other text features than this version reads: train it again")
        self.meta = meta
        self._full, self._plain, self._bounds = full, plain, bounds
        self._use_embedding = use_embedding

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.meta.tasks

    def judge(self, features: Features, embedding: Vector | None) -> Judgement:
        """Task and difficulty of one prompt; `embedding` is float32 of shape (dimension,), L2-normalised.

        A vector of another length raises HeadMismatch; one that isn't normalised (all zeros, NaN) counts as none. The
        confidence shrinks by the share of letters that aren't Latin, since no other script was in the training data.
        """
        usable = embedding if self._use_embedding else None
        if usable is not None and usable.shape != (self.meta.dimension,):
            raise HeadMismatch(f"the head reads {self.meta.dimension} dimensions; an embedding of {usable.shape} came")
        if usable is not None and not _is_normalised(usable):
            usable = None
        foreign_share = float(features[FOREIGN_SHARE])
        features = np.minimum(np.maximum(features, self._bounds[0]), self._bounds[1])
        if usable is None:
            logits = features @ self._plain[:-1] + self._plain[-1]
        else:
            logits = np.concatenate((usable, features)) @ self._full[:-1] + self._full[-1]
        tasks = np.exp(logits[:-2] - logits[:-2].max())  # (len(tasks),)
        best = int(tasks.argmax())
        weak, strong = (1.0 / (1.0 + np.exp(-logits[-2:].astype(np.float64)))).tolist()
        return Judgement(
            task=self.meta.tasks[best],
            confidence=float(tasks[best] / tasks.sum()) * (1 - foreign_share),
            weak_right=weak,
            strong_right=max(weak, strong),
            used_embedding=usable is not None,
        )

    def save(self, path: Path) -> None:
        """Writes an .npz that holds the matrices and the meta data; the same heads give the same bytes."""
        meta = np.frombuffer(msgspec.json.encode(self.meta), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, meta=meta, full=self._full, plain=self._plain, bounds=self._bounds)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())


def load(path: Path, embedder_id: str | None) -> Heads:
    """The heads in a file, if they were trained on this embedder's vectors; else HeadMismatch.

    `embedder_id` None says that there is no embedder: whatever the file was trained on, the features decide alone.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            meta = msgspec.json.decode(arrays["meta"].tobytes(), type=Meta)
            full, plain, bounds = (_matrix(arrays[name]) for name in ("full", "plain", "bounds"))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise HeadMismatch(f"{path}: not a head that this version can read: {error}") from error
    if embedder_id is not None and embedder_id != meta.embedder_id:
        raise HeadMismatch(
            f"{path}: the head was trained for {meta.embedder_id}, {meta.dimension}-d, and the configured embedder is "
            f"{embedder_id}: train one for it with `tollhouse route train`"
        )
    return Heads(meta, full, plain, bounds, use_embedding=embedder_id is not None)


def load_shipped(embedder_id: str | None) -> Heads:
    """The heads that come with the package. Raises HeadMismatch for any embedder but the default one."""
    return load(SHIPPED, embedder_id)


def _matrix(array: npt.NDArray[Any]) -> Matrix:
    if array.ndim != 2 or array.dtype != np.float32 or not np.isfinite(array).all():
        raise ValueError("a matrix of finite float32 numbers is expected")
    return array


def _is_normalised(vector: Vector) -> bool:
    wide = vector.astype(np.float64)  # the square of a large float32 overflows
    return abs(float(wide @ wide) - 1) <= NORM_TOLERANCE  # NaN compares as false
