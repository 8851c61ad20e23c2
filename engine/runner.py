"""Carries out a StepPlan: weights, KV cache and sampler of one model on one device. Knows no queue, no prefixes."""

import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from engine.block_memory import BlockMemory
from engine.chat_template import ChatTemplate
from engine.errors import EngineError, ModelLoadError
from engine.fit import count_blocks
from engine.garbage import collector_paused
from engine.grammar.masks import MaskJob, MaskWorker
from engine.loader.checkpoint import Checkpoint, load_checkpoint
from engine.models.config import ModelConfig
from engine.models.registry import build_model
from engine.plan import Sample, StepPlan, StepResult
from engine.pooling import Pooler
from engine.request import Request
from engine.sampling.logprobs import SLICE, prompt_logprobs
from engine.sampling.sampler import Sampler
from engine.types import EngineInfo, EngineOptions, LoadProgress, TokenLogprobs
from kernels.batch import BLOCK_SIZE, SequenceRows, TokenBatch
from kernels.cpu.build import KernelUnavailableError
from kernels.cpu.program import Program
from kernels.dispatch import choose_operations
from kernels.operations import HeadShape, KVCache, ModelShape, Operations


class Runner:
    """Loads everything at construction; raises ModelLoadError. `chat_template` is None when the model has none."""

    block_size = BLOCK_SIZE

    @collector_paused()  # a vocabulary alone is 100,000 objects: it would go through all of torch's several times
    def __init__(self, options: EngineOptions, progress: LoadProgress | None = None) -> None:
        self._num_threads = options.num_threads or torch.get_num_threads()
        self._thread = -1
        self._use_threads()
        device = _device(options.device)
        checkpoint = load_checkpoint(options.model, progress)
        config = checkpoint.config
        heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        self._operations = _operations(device, config, options)
        block_bytes = self._operations.block_bytes(config.num_layers, heads, options.kv_cache_dtype)
        self.num_blocks = count_blocks(options, block_bytes)
        self.num_host_blocks = int(options.swap_space_gb * 2**30) // block_bytes
        context_length = min(options.max_model_len or config.context_length, config.context_length)
        # The tables of positions: a file's claim of a long context must not take more memory than the cache can use.
        self._num_positions = min(context_length, self.num_blocks * BLOCK_SIZE)
        with self._operations.packing():  # no lock of Python's held: all else is done beside it
            self._model = build_model(config, checkpoint.weights, self._operations, self._num_positions)
            self.tokenizer = checkpoint.tokenizer
            self._memory = self._block_memory(options, config.num_layers, heads)
            self._forward = self._operations.compile(self._model.forward, max_rows=options.max_batch_tokens)
            self._logits = self._operations.compile(self._model.logits, max_rows=max(options.max_batch_size, SLICE))
            self._decode = self._operations.compile(self._forward_to_logits, max_rows=options.max_batch_size)
            self._sampler = Sampler(self._operations.sampling)
            self._masks = MaskWorker(config.vocab_size)
            self._pooler = Pooler()
            self.chat_template = _chat_template(checkpoint)
            self.info = EngineInfo(
                name=options.name or checkpoint.name,
                architecture=config.architecture,
                context_length=context_length,
                vocab_size=config.vocab_size,
                num_parameters=self._model.num_parameters,
                dtype=str(self._operations.dtype).removeprefix("torch."),
                device=str(device),
                has_chat_template=self.chat_template is not None,
            )

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Carry out the transfers, compute every planned token; then what follows from the hidden states."""
        self._memory.carry_out(plan.transfers)
        if not plan.sequences:
            return StepResult()
        sampling = [planned.request for planned in plan.sequences if planned.samples]
        masks = self._masks.begin({i: request.matcher for i, request in enumerate(sampling) if request.matcher})
        token_ids, batch = self._batch(plan)
        if len(sampling) == batch.num_generated == batch.num_rows:  # every sequence has one token and wants the next
            logits = self._decode(token_ids, batch, self._memory.cache)
            return StepResult(self._sampler.choose(logits, sampling, masks.collect()))
        hidden = self._forward(token_ids, batch, self._memory.cache)
        return StepResult(
            self._samples(plan, hidden, batch, masks),
            self._prompt_logprobs(plan, hidden, batch),
            self._embeddings(plan, hidden, batch),
        )

    @torch.inference_mode()
    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Of each sequence that samples, in plan order: [R, vocab] float32."""
        token_ids, batch = self._batch(plan)
        logits, places = self._last_logits(plan, self._forward(token_ids, batch, self._memory.cache), batch)
        return logits[torch.from_numpy(np.argsort(places)).to(logits.device)]

    @torch.inference_mode()
    def seconds_of_kernels(self, plan: StepPlan) -> dict[str, float]:
        """Where a step's time goes, without logits: each kernel's name and how long all its calls took, one by one.

        {} where a forward is no program of kernels (plain torch).
        """
        if not isinstance(self._forward, Program):
            return {}
        token_ids, batch = self._batch(plan)
        return self._forward.seconds_of_kernels(token_ids, batch, self._memory.cache)

    def _last_logits(
        self, plan: StepPlan, hidden: torch.Tensor, batch: TokenBatch
    ) -> tuple[torch.Tensor, npt.NDArray[np.intp]]:
        """[R, vocab] float32 in the order of the batch's rows, and which of the sampling sequences each row is."""
        last = batch.first_token + np.array([s.num_tokens - 1 for s in plan.sequences])
        rows = batch.row_of[last[[s.samples for s in plan.sequences]]]
        if not len(rows):
            return hidden.new_empty(0, self.info.vocab_size, dtype=torch.float32), rows
        places = np.argsort(rows)
        index = torch.from_numpy(rows[places]).to(hidden.device)
        return self._logits(hidden[index], int((rows < batch.num_generated).sum())), places

    def _samples(
        self, plan: StepPlan, hidden: torch.Tensor, batch: TokenBatch, masks: MaskJob
    ) -> list[Sample | EngineError]:
        """The next token of each sequence that samples, in plan order; so is what `masks` are of."""
        logits, places = self._last_logits(plan, hidden, batch)
        if not len(places):
            return []
        requests = [planned.request for planned in plan.sequences if planned.samples]
        mask_of = masks.collect()
        mask_of = {row: mask_of[place] for row, place in enumerate(places.tolist()) if place in mask_of}
        chosen = self._sampler.choose(logits, [requests[place] for place in places], mask_of)
        return [chosen[row] for row in np.argsort(places)]

    def _prompt_logprobs(
        self, plan: StepPlan, hidden: torch.Tensor, batch: TokenBatch
    ) -> dict[Request, list[TokenLogprobs] | EngineError]:
        found = {}
        for request, start, rows in _prompt_rows(plan, batch):
            num_top = request.params.sampling.prompt_logprobs
            if num_top is not None:
                targets = request.token_ids[start + 1 : min(start + 1 + rows.stop - rows.start, request.num_prompt)]
                found[request] = prompt_logprobs(
                    hidden[rows], targets, num_top, lambda x: self._logits(x, 0), self._operations.sampling
                )
        return found

    def _embeddings(
        self, plan: StepPlan, hidden: torch.Tensor, batch: TokenBatch
    ) -> dict[Request, tuple[float, ...] | EngineError]:
        found = {}
        for request, start, rows in _prompt_rows(plan, batch):
            if request.params.pooling is not None:
                embedding = self._pooler.push(request, start, hidden[rows])
                if embedding is not None:
                    found[request] = embedding
        return found

    def _block_memory(self, options: EngineOptions, num_layers: int, heads: HeadShape) -> BlockMemory:
        try:
            cache = self._operations.new_cache(num_layers, self.num_blocks, heads, options.kv_cache_dtype)
            return BlockMemory(cache, self.num_host_blocks)
        except (MemoryError, OSError, RuntimeError) as error:  # torch's own is a RuntimeError
            raise ModelLoadError(
                f"there is no memory for kv_cache_mb = {options.kv_cache_mb} and swap_space_gb = "
                f"{options.swap_space_gb:g} ({str(error)[:200]}): lower them"
            ) from error

    def _forward_to_logits(self, token_ids: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        """Of every row, in one program: nothing stands between the model's last norm and its head."""
        return self._model.logits(self._model.forward(token_ids, batch, cache), batch.num_generated)

    def _batch(self, plan: StepPlan) -> tuple[torch.Tensor, TokenBatch]:
        """The planned tokens in the order of the batch's rows."""
        self._use_threads()
        device = self._operations.device
        batch = TokenBatch(
            [SequenceRows(s.start, s.num_tokens, s.request.block_ids, s.request.num_prompt) for s in plan.sequences],
            device,
        )
        # The kernels check no index: what lies outside would be written all the same.
        assert batch.largest_block < self.num_blocks
        assert batch.largest_position < self._num_positions
        planned = [t for s in plan.sequences for t in s.request.token_ids[s.start : s.start + s.num_tokens]]
        return torch.tensor(planned)[torch.from_numpy(batch.order)].to(device), batch

    def _use_threads(self) -> None:
        """OpenMP's thread count belongs to the calling thread, and the stepping thread is not the one that loaded."""
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            torch.set_num_threads(self._num_threads)


def _operations(device: torch.device, config: ModelConfig, options: EngineOptions) -> Operations:
    heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
    expert_size = None if config.experts is None else config.experts.intermediate_size
    shape = ModelShape(heads, config.hidden_size, config.intermediate_size, config.num_layers, expert_size)
    try:
        return choose_operations(device, shape, bf16_copy=options.bf16_copy)
    except (ValueError, KernelUnavailableError) as error:  # the environment asks for what can't be had
        raise ModelLoadError(str(error)) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(f"device {name!r} is not a device torch knows; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f'device {name!r}: this torch finds no CUDA device; use device = "cpu"')
    return device


def _chat_template(checkpoint: Checkpoint) -> ChatTemplate | None:
    if not checkpoint.chat_template:
        return None
    text_of = {i: text for text, i in checkpoint.tokenizer.special_tokens.items()}
    bos = text_of.get(checkpoint.tokenizer.bos_id, "") if checkpoint.tokenizer.bos_id is not None else ""
    eos = text_of.get(checkpoint.tokenizer.eos_id, "") if checkpoint.tokenizer.eos_id is not None else ""
    template = ChatTemplate(checkpoint.chat_template, bos, eos, text_of.values(), checkpoint.tool_template)
    checkpoint.tokenizer.show(template.tool_format.syntax.tokens)
    return template


def _prompt_rows(plan: StepPlan, batch: TokenBatch) -> Iterator[tuple[Request, int, slice]]:
    """Each sequence that runs tokens of its prompt: where in the prompt they begin, and the batch's rows of them."""
    for planned, first in zip(plan.sequences, batch.first_token.tolist(), strict=True):
        count = min(planned.num_tokens, planned.request.num_prompt - planned.start)
        if count > 0:
            row = int(batch.row_of[first])  # a sequence's prompt rows are neighbours
            yield planned.request, planned.start, slice(row, row + count)
