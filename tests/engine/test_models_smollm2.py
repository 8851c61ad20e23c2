"""The real SmolLM2 against transformers' own Llama with the same weights: logit by logit, token by token."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import ModelWithCache

from engine.loader.checkpoint import Checkpoint, load_checkpoint
from kernels.cpu.build import LEVELS
from kernels.cpu.operations import CpuOperations
from kernels.operations import Operations
from kernels.reference import ReferenceOperations
from tests.support.kernels import skipping_what_the_machine_lacks

TEXT = (
    "Bread is made of flour, water, salt and yeast. Knead the dough for ten minutes, let it rise until it has doubled "
    "in size, shape it, and bake it at 230 degrees for half an hour. The capital of France is"
)
STEPS = 20
# Root mean square of a logit's deviation (they spread by 6) for prompt and generated tokens, and by how much the
# favourite must lead to be the same: the kernels' activations are bfloat16 in prompts and int8 in generated tokens.
DEVIATIONS = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (0.15, 0.4)}
MARGINS = {torch.float32: 1e-3, torch.bfloat16: 1.0}


@pytest.fixture(scope="module")
def checkpoint(smollm2_path: Path) -> Checkpoint:
    return load_checkpoint(str(smollm2_path))


@pytest.fixture(scope="module")
def theirs(checkpoint: Checkpoint) -> Any:
    figures = checkpoint.config
    config = transformers.LlamaConfig(
        vocab_size=figures.vocab_size,
        hidden_size=figures.hidden_size,
        intermediate_size=figures.intermediate_size,
        num_hidden_layers=figures.num_layers,
        num_attention_heads=figures.num_heads,
        num_key_value_heads=figures.num_kv_heads,
        max_position_embeddings=figures.context_length,
        rms_norm_eps=figures.rms_norm_eps,
        rope_theta=figures.rope.theta,
        tie_word_embeddings=True,
        eos_token_id=None,  # for answers of one length
    )
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in transformers.LlamaForCausalLM(config).named_parameters()}
    weights = {name: checkpoint.weights.get(name, tuple(shape)) for name, shape in shapes.items()}
    return transformers.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights).eval()


@pytest.fixture(scope="module")
def prompt(checkpoint: Checkpoint) -> list[int]:
    return checkpoint.tokenizer.encode(TEXT)


@pytest.fixture(scope="module")
def tokens(theirs: Any, prompt: list[int]) -> list[int]:
    """The prompt and the tokens that transformers adds to it."""
    ones = torch.ones(1, len(prompt), dtype=torch.long)
    answer = theirs.generate(torch.tensor([prompt]), attention_mask=ones, do_sample=False, max_new_tokens=STEPS)
    return answer[0].tolist()


@pytest.fixture(scope="module")
def wanted(theirs: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return theirs(torch.tensor([tokens]), use_cache=False).logits[0]


@pytest.fixture(scope="module", params=[*LEVELS, "reference"])
def ours(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> tuple[ModelWithCache, torch.dtype]:
    with skipping_what_the_machine_lacks():
        operations: Operations = (
            ReferenceOperations(torch.device("cpu"))
            if request.param == "reference"
            else CpuOperations(LEVELS[request.param])
        )
    return ModelWithCache(checkpoint, operations), operations.dtype


def test_every_logit_is_transformers(
    ours: tuple[ModelWithCache, torch.dtype], prompt: list[int], tokens: list[int], wanted: torch.Tensor
) -> None:
    """All positions at once, prompt and answer, each in its own role."""
    model, dtype = ours
    found = model.logits(tokens, len(prompt))
    deviation = (found - wanted).square()
    in_prompt, generated = (float(part.mean().sqrt()) for part in deviation.split([len(prompt), STEPS]))
    assert in_prompt < DEVIATIONS[dtype][0]
    assert generated < DEVIATIONS[dtype][1]
    top = wanted.topk(2, dim=1)
    clear = top.values[:, 0] - top.values[:, 1] > MARGINS[dtype]
    assert clear.sum() > len(tokens) / 2
    assert torch.equal(found.argmax(dim=1)[clear], top.indices[clear, 0])


@pytest.mark.parametrize("ours", ["reference"], indirect=True)  # bfloat16 may take the other of two near equals
def test_greedy_tokens_are_transformers(
    ours: tuple[ModelWithCache, torch.dtype], prompt: list[int], tokens: list[int]
) -> None:
    model, _ = ours
    found = list(prompt)
    start = 0
    for _ in range(STEPS):
        logits = model.logits(found, len(prompt), start=start)
        start = len(found)
        found.append(int(logits[-1].argmax()))
    assert found == tokens
