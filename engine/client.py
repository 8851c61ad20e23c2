"""The engine for asyncio: answers as async generators outside, one stepping thread inside. Imports no torch."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

from engine.engine import Engine, Output
from engine.errors import EngineStopped
from engine.plan import ModelRunner
from engine.request import Request
from engine.stepper import Stepper
from engine.tools.format import ToolFormat
from engine.types import Delta, EngineInfo, EngineOptions, EngineStats, GenerationRequest, LoadProgress


class _Stream:
    """The outputs of one request, on their way to the event loop that asked for them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.outputs: asyncio.Queue[Output] = asyncio.Queue()


class EngineClient:
    """One engine for any number of concurrent requests. `runner` replaces the one that `options.model` would give."""

    def __init__(self, options: EngineOptions, *, runner: ModelRunner | None = None) -> None:
        self._options = options
        self._runner = runner
        self._engine: Engine | None = None
        self._stepper: Stepper | None = None
        self._streams: dict[Request, _Stream] = {}
        self._token_names: dict[int, str] | None = None

    async def start(self, progress: LoadProgress | None = None) -> None:
        """Load the model; `progress` is called from another thread.

        Raises ModelLoadError if the model can't be used, ValueError if an option makes no sense.
        """
        assert self._engine is None, "an engine client starts once"
        self._engine = await asyncio.to_thread(Engine, self._options, self._runner, progress)
        self._stepper = Stepper(self._engine, self._options, self._deliver)
        self._stepper.start()

    async def aclose(self) -> None:
        """End the thread after the step that is under way; running requests end with EngineStopped. Idempotent."""
        if self._stepper is not None:
            await asyncio.to_thread(self._stepper.stop)

    @property
    def info(self) -> EngineInfo:
        return self._started().info

    @property
    def max_choices(self) -> int:
        """Answers that may run or wait at a time, those of all requests together."""
        return self._started().max_choices

    def encode(self, text: str, *, add_bos: bool | None = None) -> list[int]:
        """Token ids of a prompt, with a BOS token if the model wants one; or as `add_bos` says."""
        return self._started().tokenizer.encode(text, add_bos)

    def decode(self, token_ids: list[int]) -> str:
        return self._started().tokenizer.decode(token_ids)

    def bytes_after(self, previous: int | None, token_id: int) -> bytes:
        """What a token adds to the text after `previous` (None: at its beginning); b"" for control tokens."""
        return self._started().tokenizer.bytes_after(previous, token_id)

    def token_name(self, token_id: int) -> str:
        """What a special or control token is called; "" for all others."""
        if self._token_names is None:
            self._token_names = {i: name for name, i in self._started().tokenizer.special_tokens.items()}
        return self._token_names.get(token_id, "")

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids of a conversation, up to where the answer begins. Raises TemplateError."""
        return self._started().encode_chat(messages, tools)

    @property
    def tool_format(self) -> ToolFormat:
        """How the model is told of tools, and how it calls them. Raises TemplateError."""
        return self._started().tool_format

    async def generate(
        self, request: GenerationRequest, on_compute: Callable[[int], object] | None = None
    ) -> AsyncIterator[Delta]:
        """The deltas of all the request's answers, each with its `index`.

        Closing the generator, or cancelling its task, frees the request's blocks within a step. `on_compute` is told
        what share of the engine's time the request has taken since the last call, in nanoseconds: before each delta,
        and at the end, however it comes. The times of all requests add up to that of the steps.

        Raises InvalidRequest, PromptTooLong, EngineOverloaded before the first delta; StepFailed and EngineStopped at
        any time.
        """
        engine, stepper = self._started(), self._stepper
        assert stepper is not None
        # A grammar can take a while to compile, and must not hold up the other streams meanwhile.
        prepared = (
            engine.prepare(request) if request.grammar is None else await asyncio.to_thread(engine.prepare, request)
        )
        stream = self._streams[prepared] = _Stream()
        told_ns = 0

        def tell() -> None:
            nonlocal told_ns
            new_ns, told_ns = prepared.compute_ns - told_ns, prepared.compute_ns
            if on_compute is not None and new_ns:
                on_compute(new_ns)

        try:
            stepper.submit(prepared)
            while True:
                output = await stream.outputs.get()
                tell()
                if output.error is not None:
                    raise output.error
                assert output.delta is not None
                yield output.delta
                if output.is_last:
                    return
        finally:
            self._streams.pop(prepared, None)
            stepper.abort(prepared)
            tell()

    def stats(self) -> EngineStats:
        return self._started().stats()

    def check_integrity(self) -> None:
        """Assert that no block is lost; only meaningful while nothing runs."""
        self._started().check_integrity()

    def _started(self) -> Engine:
        if self._engine is None:
            raise EngineStopped("the engine has not been started")
        return self._engine

    def _deliver(self, outputs: list[Output]) -> None:
        """On the stepping thread: wake each event loop once."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, Output]]] = defaultdict(list)
        for output in outputs:
            stream = self._streams.get(output.request)
            if stream is not None:
                by_loop[stream.loop].append((stream, output))
        for loop, pairs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_hand_out, pairs)
            except RuntimeError:  # this loop was closed with its answers unread
                self._drop(pairs)

    def _drop(self, pairs: list[tuple[_Stream, Output]]) -> None:
        assert self._stepper is not None
        for _, output in pairs:
            self._streams.pop(output.request, None)
            self._stepper.abort(output.request)


def _hand_out(pairs: list[tuple[_Stream, Output]]) -> None:
    for stream, output in pairs:
        stream.outputs.put_nowait(output)
