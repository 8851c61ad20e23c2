"""The engine without a gateway: how long a step takes."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine.load import random_prompt
from engine.engine import Engine
from engine.types import EngineOptions, GenerationRequest, SamplingParams

KV_CACHE_MB = 256


@dataclass(slots=True, frozen=True)
class StepTime:
    num_streams: int
    step_s: float  # median, of steps in which every stream gives one token
    tokens_per_s: float


class Inside:
    def __init__(self, model: Path, threads: int) -> None:
        self._num_requests = 0
        start = time.perf_counter()
        self.engine = Engine(EngineOptions(model=str(model), num_threads=threads, kv_cache_mb=KV_CACHE_MB))
        self.load_s = time.perf_counter() - start
        self._run(1, 16, 2)

    def decode(self, num_streams: int, context: int, num_steps: int = 40) -> StepTime:
        """Steps of `num_streams` that have `context` tokens each, and a few more that the first got meanwhile."""
        self._add(num_streams, context, num_streams + num_steps + 1)  # every step ends a prompt, if it holds `context`
        while self.engine.stats().num_waiting or any(r.num_pending > 1 for r in self.engine.scheduler.running):
            self.engine.step()
        times = []
        for _ in range(num_steps):
            start = time.perf_counter()
            self.engine.step()
            times.append(time.perf_counter() - start)
        assert self.engine.stats().num_running == num_streams, "a stream ended before the last step"
        while self.engine.has_work:
            self.engine.step()
        step_s = statistics.median(times)
        return StepTime(num_streams, step_s, num_streams / step_s)

    def prefill(self, num_tokens: int) -> float:
        """Prompt tokens per second, best of five."""
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            self._run(1, num_tokens, 1)
            best = min(best, time.perf_counter() - start)
        return num_tokens / best

    def _run(self, num_streams: int, num_prompt: int, num_output: int) -> None:
        self._add(num_streams, num_prompt, num_output)
        while self.engine.has_work:
            self.engine.step()

    def _add(self, num_streams: int, num_prompt: int, num_output: int) -> None:
        for _ in range(num_streams):
            self._num_requests += 1
            sampling = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
            prompt = random_prompt(num_prompt, self._num_requests)
            self.engine.add_request(
                GenerationRequest(request_id=str(self._num_requests), prompt_token_ids=prompt, sampling=sampling)
            )
