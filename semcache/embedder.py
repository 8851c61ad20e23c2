"""Texts to vectors for many callers at once: micro-batches in one worker thread. Knows nothing of caching.

Importing this module imports neither torch nor sentence_transformers; `start` does.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from semcache.errors import EmbedderError
from semcache.sentence_model import SentenceModel
from semcache.vector import Vectors


class _Waiting:
    """One caller's texts and where the vectors go."""

    __slots__ = ("texts", "vectors")

    def __init__(self, texts: list[str], vectors: "asyncio.Future[Vectors]") -> None:
        self.texts = texts
        self.vectors = vectors


class Embedder:
    """Micro-batches concurrent callers into runs of at most `max_batch_size` texts.

    A lone caller never waits: a batch is held back, for up to `max_wait_ms`, only when the one before it served several
    callers. While the worker runs, new callers collect by themselves. A long list goes in pieces, and others come in
    between. A caller that is cancelled before its batch starts is left out of it; a text that fails, fails alone.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_batch_size: int = 32,
        max_wait_ms: float = 2.0,
        device: str = "cpu",
        dtype: str = "auto",
    ) -> None:
        if max_batch_size < 1 or max_wait_ms < 0:
            raise EmbedderError("max_batch_size must be at least 1 and max_wait_ms at least 0")
        self._path, self._device, self._dtype = path, device, dtype
        self._max_batch_size = max_batch_size
        self._max_wait_s = max_wait_ms / 1000
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._company = False  # did the last batch serve more than one caller?
        self._model: SentenceModel | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._batching: asyncio.Task[None] | None = None

    @property
    def model(self) -> SentenceModel:
        """The loaded model; EmbedderError before `start` and after `aclose`."""
        if self._model is None:
            raise EmbedderError("the embedder is not running")
        return self._model

    @property
    def id(self) -> str:
        """Names the weights: cached vectors and heads belong to it."""
        return self.model.id

    @property
    def dimension(self) -> int:
        return self.model.dimension

    @property
    def max_tokens(self) -> int:
        return self.model.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together by the model's own tokenizer, special tokens included, nothing cut off."""
        return self.model.count_tokens(texts)

    def fits(self, text: str) -> bool:
        """Whether the model reads the text to its end; what it can't read has no influence on the vector."""
        return self.model.fits(text)

    async def start(self) -> None:
        """Loads the model in the worker thread and warms it up. Raises EmbedderError. Calling it again does nothing."""
        if self._worker is not None:
            return
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedder", initializer=_use_one_core)
        try:
            self._model = await asyncio.get_running_loop().run_in_executor(
                self._worker, lambda: SentenceModel(self._path, device=self._device, dtype=self._dtype)
            )
        except BaseException:
            self._worker.shutdown(wait=False)
            self._worker = None
            raise
        self._batching = asyncio.create_task(self._batch_forever(), name="embedder")

    async def aclose(self) -> None:
        """Ends the worker; callers still waiting get EmbedderError. Idempotent."""
        if self._batching is not None:
            self._batching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._batching
        self._fail_all()
        if self._worker is not None:
            self._worker.shutdown(wait=False)
        self._batching = self._worker = self._model = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """(n,) texts -> (n, d) float32, each row of length 1. Raises EmbedderError."""
        if isinstance(texts, str):
            raise EmbedderError("embed takes a list of texts, not one text")
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        size = self._max_batch_size
        parts = [await self._embed_part(list(texts[at : at + size])) for at in range(0, len(texts), size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    async def _embed_part(self, texts: list[str]) -> Vectors:
        if self._batching is None or self._batching.done():
            raise EmbedderError("the embedder is not running")
        waiting = _Waiting(texts, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        try:
            return await waiting.vectors
        finally:
            if waiting.vectors.cancelled():
                with contextlib.suppress(ValueError):  # already taken into a batch
                    self._queue.remove(waiting)

    async def _batch_forever(self) -> None:
        while True:
            await self._arrived.wait()
            if self._company and self._max_wait_s:
                await self._wait_for_company()
            batch = self._take()
            self._company = len(batch) > 1
            if batch:
                await self._run(batch)

    async def _wait_for_company(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait_s):
                while sum(len(waiting.texts) for waiting in self._queue) < self._max_batch_size:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _take(self) -> list[_Waiting]:
        """The longest run of callers, in order of arrival, that fits one batch."""
        batch: list[_Waiting] = []
        room = self._max_batch_size
        while self._queue and len(self._queue[0].texts) <= room:
            waiting = self._queue.popleft()
            room -= len(waiting.texts)
            batch.append(waiting)
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            await self._serve(batch)
        except asyncio.CancelledError:  # those of the batch that have no vectors yet must not wait for ever
            for waiting in batch:
                _resolve(waiting, EmbedderError("the embedder was stopped"))
            raise

    async def _serve(self, batch: list[_Waiting]) -> None:
        try:
            vectors = await self._encode([text for waiting in batch for text in waiting.texts])
        except EmbedderError as error:
            if len(batch) == 1:
                _resolve(batch[0], error)
                return
            for waiting in batch:  # one bad text must not fail its neighbours
                await self._serve([waiting])
            return
        at = 0
        for waiting in batch:
            _resolve(waiting, vectors[at : at + len(waiting.texts)])
            at += len(waiting.texts)

    async def _encode(self, texts: list[str]) -> Vectors:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, self.model.encode, texts)
        except EmbedderError:
            raise
        except Exception as error:  # torch's and the tokenizer's own errors
            raise EmbedderError(f"the embedding model failed: {error}") from error

    def _fail_all(self) -> None:
        while self._queue:
            _resolve(self._queue.popleft(), EmbedderError("the embedder was stopped"))


def _resolve(waiting: _Waiting, outcome: Vectors | EmbedderError) -> None:
    if waiting.vectors.done():  # its caller left
        return
    if isinstance(outcome, EmbedderError):
        waiting.vectors.set_exception(outcome)
    else:
        waiting.vectors.set_result(outcome)


def _use_one_core() -> None:
    """One thread for this thread's OpenMP regions: a short text gains nothing from two, and loses much on busy cores.

    torch.set_num_threads would take cores from the whole process; omp_set_num_threads counts for the calling thread.
    """
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    torch.get_num_threads()  # torch sets a new thread's count at its first use, so that must come first
    threadpool_limits(limits=1, user_api="openmp")
