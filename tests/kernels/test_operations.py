"""A small decoder over every implementation: recorded or not, in any company and any cut, and beside the torch twin."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.matrix import Matrix, QuantisedMatrix
from kernels.operations import AttentionRule, HeadShape, KVCache, Operations, RotaryTables
from kernels.reference import ReferenceOperations
from kernels.self_test import random_quantised

CPU = torch.device("cpu")
HEADS, HIDDEN, INTERMEDIATE, VOCABULARY, LAYERS = HeadShape(6, 2, 32), 96, 160, 300, 2
KINDS = ("float", "4 bit", "8 bit")


class Decoder:
    """Two layers of random weights: floats, or codes of so many bits."""

    def __init__(self, operations: Operations, kind: str) -> None:
        self.operations = operations
        self._generator = torch.Generator().manual_seed(0)
        self.kind = kind
        size = HEADS.num_heads * HEADS.head_dim
        head = self._matrix(VOCABULARY, HIDDEN)
        self._table, self._head = operations.pack_table(head), operations.pack([head])
        shapes = {"qkv": (HEADS.qkv_size, HIDDEN), "out": (HIDDEN, size), "down": (HIDDEN, INTERMEDIATE)}
        self._layers = [
            {name: operations.pack([self._matrix(*shape)]) for name, shape in shapes.items()}
            | {"up": operations.pack([self._matrix(INTERMEDIATE, HIDDEN) for _ in range(2)])}
            for _ in range(LAYERS)
        ]
        self._norm = torch.linspace(0.5, 1.5, HIDDEN)
        angles = torch.outer(torch.arange(128.0), torch.rand(HEADS.head_dim // 2, generator=self._generator))
        self._rotary = RotaryTables(angles.cos(), angles.sin())

    def _matrix(self, outputs: int, inputs: int) -> Matrix:
        if self.kind == "float":
            weights: torch.Tensor = torch.randn(outputs, inputs, generator=self._generator).bfloat16() * inputs**-0.5
            return weights
        matrix = random_quantised(int(self.kind[0]), outputs, inputs, self._generator)
        return QuantisedMatrix(matrix.bits, matrix.codes, matrix.scales * 0.1, matrix.minimums * 0.1)

    def forward(self, token_ids: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        o, rule = self.operations, AttentionRule(HEADS.head_dim**-0.5)
        residual, update = o.embed(token_ids, self._table), None
        for index, layer in enumerate(self._layers):
            qkv = o.linear(o.add_rms_norm(residual, update, self._norm, 1e-5), layer["qkv"], batch)
            o.rope_and_store(qkv, self._rotary, batch, cache, index, HEADS)
            attended = o.linear(o.paged_attention(qkv, batch, cache, index, HEADS, rule), layer["out"], batch)
            x = o.add_rms_norm(residual, attended, self._norm, 1e-5)
            update = o.linear(o.gated(o.linear(x, layer["up"], batch)), layer["down"], batch)
        return o.add_rms_norm(residual, update, self._norm, 1e-5)

    def logits(self, x: torch.Tensor, num_generated: int) -> torch.Tensor:
        return self.operations.logits(x, self._head, num_generated)


@dataclass(frozen=True)
class Story:
    """One sequence: its tokens, how many of them are the prompt, where they lie, and in which parts they are run."""

    seed: int
    length: int
    num_prompt: int
    block_ids: tuple[int, ...]
    parts: tuple[int, ...]


def run(decoder: Decoder, stories: Sequence[Story], record: bool = False) -> list[torch.Tensor]:
    """Hidden state and logits of each token of each story; step i runs part i of every story that has one."""
    operations = decoder.operations
    cache = operations.new_cache(LAYERS, 20, HEADS)
    for tensor in cache.tensors:
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)  # what earlier sequences left is never seen
    forward, logits = decoder.forward, decoder.logits
    if record:
        forward, logits = (operations.compile(each, max_rows=128) for each in (forward, logits))
    results: list[list[torch.Tensor]] = [[] for _ in stories]
    done = [0] * len(stories)
    for step in range(max(len(story.parts) for story in stories)):
        running = [i for i, story in enumerate(stories) if step < len(story.parts)]
        rows = [
            SequenceRows(done[i], stories[i].parts[step], stories[i].block_ids, stories[i].num_prompt) for i in running
        ]
        batch = TokenBatch(rows, CPU)
        tokens = torch.cat([token_ids(stories[i])[done[i] :][: stories[i].parts[step]] for i in running])
        hidden = forward(tokens[torch.from_numpy(batch.order)], batch, cache)
        both = torch.cat([hidden.float(), logits(hidden.contiguous(), batch.num_generated)], dim=1).clone()
        for i, first in zip(running, batch.first_token, strict=True):
            planned = torch.arange(stories[i].parts[step]) + int(first)
            results[i].append(both[torch.from_numpy(batch.row_of)[planned]])
            done[i] += stories[i].parts[step]
    return [torch.cat(parts) for parts in results]


def token_ids(story: Story) -> torch.Tensor:
    return torch.randint(VOCABULARY, (story.length,), generator=torch.Generator().manual_seed(story.seed))


ALONE = Story(1, 40, 33, (7, 2, 11), (33, *(1,) * 7))
COMPANY = [
    Story(2, 50, 30, (1, 3, 4, 5), (5, 25, *(1,) * 20)),
    Story(3, 20, 20, (6, 8), (1,) * 20),
    Story(4, 60, 60, (9, 10, 12, 13), (60,)),
    Story(5, 20, 1, (14, 15), (1,) * 20),
]


@pytest.fixture(scope="module", params=KINDS)
def decoder(operations: Operations, request: pytest.FixtureRequest) -> Decoder:
    return Decoder(operations, request.param)


@pytest.fixture(scope="module")
def alone(decoder: Decoder) -> torch.Tensor:
    return run(decoder, [ALONE])[0]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_recorded_forward_gives_the_same_bits(decoder: Decoder, num_threads: int) -> None:
    stories = [ALONE, *COMPANY]
    if decoder.operations.name == "reference":  # MKL's sums depend on the number of threads, the kernels' don't
        torch.set_num_threads(num_threads)
    plain = run(decoder, stories)
    torch.set_num_threads(num_threads)
    for recorded, one_by_one in zip(run(decoder, stories, record=True), plain, strict=True):
        assert torch.equal(recorded, one_by_one)


@pytest.mark.parametrize("where", [0, 2, 4])
def test_company_changes_no_bit(decoder: Decoder, alone: torch.Tensor, where: int) -> None:
    stories = [*COMPANY[:where], ALONE, *COMPANY[where:]]
    assert torch.equal(run(decoder, stories, record=True)[where], alone)


@pytest.mark.parametrize("parts", [(1,) * 40, (16, 17, 7), (40,), (3, 13, 20, 4), (34, 6)])
def test_no_cut_changes_a_bit(decoder: Decoder, alone: torch.Tensor, parts: tuple[int, ...]) -> None:
    """Chunks of the prompt; and generated tokens recomputed all at once, with or without the prompt's last."""
    story = Story(ALONE.seed, ALONE.length, ALONE.num_prompt, ALONE.block_ids, parts)
    assert torch.equal(run(decoder, [COMPANY[0], story], record=True)[1], alone)


def test_it_computes_what_the_twin_computes(decoder: Decoder, alone: torch.Tensor) -> None:
    twin = run(Decoder(ReferenceOperations(CPU), decoder.kind), [ALONE])[0]
    assert torch.isfinite(alone).all()
    assert (alone - twin).abs().max() < 0.05 * twin.abs().max()
