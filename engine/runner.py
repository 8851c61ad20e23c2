"""Carries out a StepPlan: weights, KV cache and sampler of one model on one device. Knows no queue, no prefixes."""

import threading

import torch

from engine.chat_template import ChatTemplate
from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, load_checkpoint
from engine.models.config import ModelConfig
from engine.models.registry import build_model
from engine.plan import PlannedSequence, StepPlan
from engine.sampler import RowSampling, Sampler
from engine.types import EngineInfo, EngineOptions
from kernels.batch import BLOCK_SIZE, SequenceRows, TokenBatch
from kernels.cpu.build import KernelUnavailableError
from kernels.dispatch import choose_operations
from kernels.operations import HeadShape, Operations


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
        self._operations = _operations(device, config, heads)
        self.num_blocks = self._count_blocks(options, config.num_layers, heads)
        context_length = min(options.max_model_len or config.context_length, config.context_length)
        # The tables of positions: a file's claim of a long context must not take more memory than the cache can use.
        self._num_positions = min(context_length, self.num_blocks * BLOCK_SIZE)
        self._model = build_model(config, checkpoint.weights, self._operations, self._num_positions)
        self._cache = self._operations.new_cache(config.num_layers, self.num_blocks, heads)
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

    def run(self, plan: StepPlan) -> list[int]:
        """Compute every planned token; one sampled id for each sequence with samples=True, in plan order."""
        if not plan.sequences:
            return []
        sampling = [planned for planned in plan.sequences if planned.samples]
        return self._sampler.choose(self.logits(plan), [_row_sampling(planned) for planned in sampling])

    @torch.inference_mode()
    def logits(self, plan: StepPlan) -> torch.Tensor:
        """As `run`, but the logits [number of sampling sequences, vocab] float32 instead of a choice."""
        self._use_threads()
        batch = TokenBatch(
            [SequenceRows(s.start, s.num_tokens, s.request.block_ids) for s in plan.sequences], self._operations.device
        )
        # The kernels check no index: what lies outside would be written all the same.
        assert batch.largest_block < self.num_blocks
        assert batch.largest_position < self._num_positions
        token_ids = [t for s in plan.sequences for t in s.request.token_ids[s.start : s.start + s.num_tokens]]
        last_rows = [
            int(first) + s.num_tokens - 1 for s, first in zip(plan.sequences, batch.first_row, strict=True) if s.samples
        ]
        device = self._operations.device
        return self._model.forward(
            torch.tensor(token_ids, device=device),
            torch.tensor(last_rows, dtype=torch.long, device=device),
            batch,
            self._cache,
        )

    def _use_threads(self) -> None:
        """OpenMP's thread count belongs to the calling thread, and the stepping thread is not the one that loaded."""
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            torch.set_num_threads(self._num_threads)

    def _count_blocks(self, options: EngineOptions, num_layers: int, heads: HeadShape) -> int:
        elements = 2 * num_layers * heads.num_kv_heads * heads.head_dim * BLOCK_SIZE
        block_bytes = elements * self._operations.dtype.itemsize
        num_blocks = (options.kv_cache_mb << 20) // block_bytes
        if num_blocks < 2:
            raise ModelLoadError(
                f"kv_cache_mb = {options.kv_cache_mb} holds {num_blocks} blocks of {BLOCK_SIZE} tokens; "
                f"a block takes {block_bytes / 2**20:.1f} MiB: raise kv_cache_mb"
            )
        return num_blocks


def _operations(device: torch.device, config: ModelConfig, heads: HeadShape) -> Operations:
    try:
        return choose_operations(device, heads, config.hidden_size, config.intermediate_size)
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
