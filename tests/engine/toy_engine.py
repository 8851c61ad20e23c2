"""A whole engine over the toy runner, asked and driven to its end; whatever runs, its books are checked."""

from typing import Any

from toy_runner import ToyRunner

from engine.engine import Engine, Output
from engine.request import Request
from engine.types import Delta, EngineOptions, GenerationRequest, SamplingParams


def make(toy: ToyRunner, **options: Any) -> Engine:
    return Engine(EngineOptions(model="toy", **{"max_batch_tokens": 64, "max_batch_size": 8, **options}), toy)


def add(engine: Engine, prompt: list[int], name: str = "r", salt: str = "", **sampling: Any) -> Request:
    return engine.add_request(
        GenerationRequest(
            request_id=name,
            prompt_token_ids=prompt,
            cache_salt=salt,
            sampling=SamplingParams(**{"temperature": 0.0, **sampling}),
        )
    )


def drain(engine: Engine, max_steps: int = 5000) -> dict[Request, list[Output]]:
    outputs: dict[Request, list[Output]] = {}
    for _ in range(max_steps):
        if not engine.has_work:
            engine.check_integrity()
            assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
            return outputs
        for output in engine.step():
            outputs.setdefault(output.request, []).append(output)
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def deltas(outputs: list[Output]) -> list[Delta]:
    assert all(output.delta is not None for output in outputs), outputs
    return [output.delta for output in outputs if output.delta is not None]


def ask(engine: Engine, prompt: list[int], **more: Any) -> list[Delta]:
    request = add(engine, prompt, **more)
    return deltas(drain(engine)[request])


def tokens(answer: list[Delta]) -> list[int]:
    return [token for delta in answer for token in delta.token_ids]


def text(answer: list[Delta]) -> str:
    return "".join(delta.text for delta in answer)


def check_books(answer: list[Delta], num_prompt: int) -> None:
    """Exactly one end, and the same count of tokens whichever way it is counted."""
    assert [delta.finish_reason is not None for delta in answer] == [False] * (len(answer) - 1) + [True]
    assert answer[-1].num_generated_tokens == len(tokens(answer))
    assert all(delta.num_prompt_tokens == num_prompt for delta in answer)


def script(*pieces: bytes | int) -> list[int]:
    return [token for piece in pieces for token in ([piece] if isinstance(piece, int) else piece)]
