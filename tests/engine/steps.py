"""Hand-made requests and plans, to drive a Runner without a scheduler."""

from engine.plan import PlannedSequence, Sample, StepPlan
from engine.request import Request
from engine.runner import Runner
from engine.types import GenerationRequest, SamplingParams


def make_request(prompt: list[int], blocks: range | list[int], **sampling: object) -> Request:
    params = GenerationRequest(
        request_id="r", prompt_token_ids=prompt, sampling=SamplingParams(**{"temperature": 0.0, "seed": 0, **sampling})
    )
    return Request(params=params, token_ids=list(prompt), num_prompt=len(prompt), block_ids=list(blocks))


def whole(request: Request, start: int = 0) -> PlannedSequence:
    return PlannedSequence(request, start, len(request.token_ids) - start, samples=True)


def last(request: Request) -> PlannedSequence:
    return whole(request, len(request.token_ids) - 1)


def generate(runner: Runner, requests: list[Request], count: int) -> list[list[int]]:
    """`count` tokens for each, all in one batch."""
    starts = [0] * len(requests)
    for _ in range(count):
        plan = StepPlan([whole(request, start) for request, start in zip(requests, starts, strict=True)])
        for index, (request, sample) in enumerate(zip(requests, runner.run(plan).samples, strict=True)):
            assert isinstance(sample, Sample)
            starts[index] = len(request.token_ids)
            request.token_ids.append(sample.token_id)
    return [request.token_ids[request.num_prompt :] for request in requests]
