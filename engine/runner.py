"""Carries out a StepPlan: weights, KV cache and sampler of one model on one device. Knows no queue, no prefixes."""

import threading

import torch

from engine.block_memory import BlockMemory
from engine.chat_template import ChatTemplate
from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, load_checkpoint
from engine.models.config import ModelConfig
from engine.models.registry import build_model
from engine.plan import PlannedSequence, Sample, StepPlan, StepResult
from engine.sampler import RowSampling, Sampler
from engine.types import EngineInfo, EngineOptions
from kernels.batch import BLOCK_SIZE, SequenceRows, TokenBatch
from kernels.cpu.build import KernelUnavailableError
from kernels.dispatch import choose_operations
from kernels.operations import HeadShape, ModelShape, Operations


class Runner:
    """Loads everything at construction; raises ModelLoadError. `chat_template` is None when the model has none."""

    block_size = BLOCK_SIZE

    def __init__(self, options: EngineOptions) -> None:
        self._num_threads = options.num_threads or torch.get_num_threads()
        self._thread = -1
        self._use_threads()
        device = _device(options.device)
        checkpoint = load_checkpoint(options.model)
        config = checkpoint.config
        heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        self._operations = _operations(device, config, options)
        block_bytes = self._operations.block_bytes(config.num_layers, heads, options.kv_cache_dtype)
        self.num_blocks = _count_blocks(options, block_bytes)
        self.num_host_blocks = int(options.swap_space_gb * 2**30) // block_bytes
        context_length = min(options.max_model_len or config.context_length, config.context_length)
        # The tables of positions: a file's claim of a long context must not take more memory than the cache can use.
        self._num_positions = min(context_length, self.num_blocks * BLOCK_SIZE)
        self._model = build_model(config, checkpoint.weights, self._operations, self._num_positions)
        cache = self._operations.new_cache(config.num_layers, self.num_blocks, heads, options.kv_cache_dtype)
        self._memory = BlockMemory(cache, self.num_host_blocks)
        self._forward = self._operations.compile(self._model.forward, max_rows=options.max_batch_tokens)
        self._logits = self._operations.compile(self._model.logits, max_rows=options.max_batch_size)
        self._sampler = Sampler()
        self.tokenizer = checkpoint.tokenizer
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

    def run(self, plan: StepPlan) -> StepResult:
        """Carry out the transfers, compute every planned token, choose the next one of each sequence that samples."""
        self._memory.carry_out(plan.transfers)
        if not plan.sequences:
            return StepResult()
        sampling = [planned for planned in plan.sequences if planned.samples]
        token_ids = self._sampler.choose(self.logits(plan), [_row_sampling(planned) for planned in sampling])
        return StepResult([Sample(token_id) for token_id in token_ids])

    @torch.inference_mode()
    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Of each sequence that samples, in plan order: [R, vocab] float32."""
        hidden, batch = self._run_model(plan)
        ends = [s.num_tokens - 1 for s in plan.sequences]
        rows = [
            int(batch.row_of[first + end])
            for s, first, end in zip(plan.sequences, batch.first_token, ends, strict=True)
            if s.samples
        ]
        return self._logits_of(hidden, rows, batch.num_generated)

    def _logits_of(self, hidden: torch.Tensor, rows: list[int], num_generated: int) -> torch.Tensor:
        """Of rows of `hidden` in any order, [R, vocab] float32 in that order."""
        if not rows:
            return torch.empty(0, self.info.vocab_size, device=self._operations.device)
        # The model takes generated tokens' rows first.
        order = sorted(range(len(rows)), key=lambda place: rows[place])
        index = torch.tensor([rows[place] for place in order], device=self._operations.device)
        logits = self._logits(hidden[index], sum(row < num_generated for row in rows))
        if order == list(range(len(rows))):
            return logits
        back = torch.empty(len(rows), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(rows))
        return logits[back.to(logits.device)]

    def _run_model(self, plan: StepPlan) -> tuple[torch.Tensor, TokenBatch]:
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
        token_ids = torch.tensor(planned)[torch.from_numpy(batch.order)].to(device)
        return self._forward(token_ids, batch, self._memory.cache), batch

    def _use_threads(self) -> None:
        """OpenMP's thread count belongs to the calling thread, and the stepping thread is not the one that loaded."""
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            torch.set_num_threads(self._num_threads)


def _count_blocks(options: EngineOptions, block_bytes: int) -> int:
    num_blocks = (options.kv_cache_mb << 20) // block_bytes
    if num_blocks < 2:
        raise ModelLoadError(
            f"kv_cache_mb = {options.kv_cache_mb} holds {num_blocks} blocks of {BLOCK_SIZE} tokens; "
            f"a block takes {block_bytes / 2**20:.1f} MiB: raise kv_cache_mb"
        )
    return num_blocks


def _operations(device: torch.device, config: ModelConfig, options: EngineOptions) -> Operations:
    heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
    shape = ModelShape(heads, config.hidden_size, config.intermediate_size, config.num_layers)
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
    return ChatTemplate(checkpoint.chat_template, bos, eos, text_of.values())


def _row_sampling(planned: PlannedSequence) -> RowSampling:
    request = planned.request
    sampling = request.params.sampling
    return RowSampling(
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed, planned.start + planned.num_tokens
    )
