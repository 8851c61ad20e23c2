"""What a start with these options would refuse or cut down, told from the model's header: no weight is read."""

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.models.registry import family_of
from engine.types import EngineOptions
from engine.validation import check_options
from kernels.batch import BLOCK_SIZE
from kernels.cpu.attention import block_bytes
from kernels.operations import HeadShape


def check_fit(options: EngineOptions) -> list[str]:
    """What the engine would silently make less of. Raises ValueError and ModelLoadError where it would not start.

    Counts the KV cache as the CPU's kernels and GPUs lay it out; plain torch on a CPU takes twice as much.
    """
    check_options(options)
    config = load_checkpoint(options.model).config
    family_of(config)  # refuses what is none
    heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
    num_tokens = BLOCK_SIZE * count_blocks(options, block_bytes(config.num_layers, heads, options.kv_cache_dtype))
    wanted = options.max_model_len or config.context_length
    notes = []
    if wanted > config.context_length:
        notes.append(f"max_model_len = {wanted} is cut to the model's own context, {config.context_length} tokens")
    if num_tokens < min(wanted, config.context_length):
        notes.append(
            f"kv_cache_mb = {options.kv_cache_mb} holds {num_tokens} tokens: no prompt with its answer is longer"
        )
    return notes


def count_blocks(options: EngineOptions, block_bytes: int) -> int:
    """How many blocks of the KV cache there is room for. Raises ModelLoadError for hardly any."""
    num_blocks = (options.kv_cache_mb << 20) // block_bytes
    if num_blocks < 2:
        raise ModelLoadError(
            f"kv_cache_mb = {options.kv_cache_mb} holds {num_blocks} blocks of {BLOCK_SIZE} tokens; "
            f"a block takes {block_bytes / 2**20:.1f} MiB: raise kv_cache_mb"
        )
    return num_blocks
