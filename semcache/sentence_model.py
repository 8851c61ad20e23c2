"""A sentence-transformers model on this machine, read from a folder and never from the network.

Synchronous and meant for one thread at a time (`count_tokens` and `fits` may be called from any). Knows nothing of
asyncio, batching over callers or caching. torch and sentence_transformers are imported when a model is loaded.
"""

import copy
import hashlib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semcache.errors import EmbedderError
from semcache.vector import Vectors

WEIGHT_SUFFIXES = {".safetensors", ".bin"}
MAX_CHARS_PER_TOKEN = 64  # text beyond `max_tokens` times this is not even tokenized
UNREAD_WORD = re.compile(r"\w{101}")  # WordPiece reads a word of more than 100 characters as one unknown token


class SentenceModel:
    """Turns texts into L2-normalised vectors.

    The transformer runs in bfloat16 where the processor multiplies it natively (twice as fast on one thread, cosine to
    float32 above 0.9998 measured on MiniLM), in float32 elsewhere; pooling and all later modules are float32 always.
    A text longer than `max_tokens` is cut there by the model: what follows has no influence on its vector.
    """

    def __init__(self, path: str | Path, *, device: str = "cpu", dtype: str = "auto") -> None:
        """Loads the model. `dtype` is "auto", "float32" or "bfloat16". Raises EmbedderError."""
        folder = Path(path)
        if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
            raise EmbedderError(f"no sentence-transformers model in {folder}: neither modules.json nor config.json")
        try:
            self._model = _load(folder, device)
            self.id = weights_id(folder)
            self._lower_precision(dtype, device)
            self._counting_tokenizer = copy.deepcopy(self._model.tokenizer)  # a fast tokenizer is not thread-safe
            self._prefix = self._model.prompts.get(self._model.default_prompt_name or "", "") or ""
            self.max_tokens = int(self._model.max_seq_length or 512)
            self._special_tokens = self.count_tokens([""])
            self.dimension = int(self.encode([""]).shape[1])
        except EmbedderError:
            raise
        except Exception as error:  # whatever torch, transformers and the files come up with
            raise EmbedderError(f"cannot load the embedding model in {folder}: {error}") from error

    def _lower_precision(self, dtype: str, device: str) -> None:
        import torch

        if dtype not in ("auto", "float32", "bfloat16"):
            raise EmbedderError(f"dtype must be auto, float32 or bfloat16, not {dtype!r}")
        native = device != "cpu" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        self.dtype = "bfloat16" if dtype == "bfloat16" or (dtype == "auto" and native) else "float32"
        if self.dtype == "bfloat16":
            self._model[0].to(torch.bfloat16)
            if device == "cpu":
                from semcache.packed_linear import pack_linears

                pack_linears(self._model[0])

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(n,) texts -> (n, d) float32, each row of length 1, in one run of the model."""
        import torch

        limit = self.max_tokens * MAX_CHARS_PER_TOKEN
        with torch.inference_mode():
            features: dict[str, Any] = self._model.preprocess([self._prefix + text[:limit] for text in texts])
            features = {
                name: value.to(self._model.device) if isinstance(value, torch.Tensor) else value
                for name, value in features.items()
            }
            for module in self._model:
                features = module(features)
                if features.get("token_embeddings") is not None:  # (n, t, d)
                    features["token_embeddings"] = features["token_embeddings"].float()
            vectors = torch.nn.functional.normalize(features["sentence_embedding"].float(), dim=1)  # (n, d)
        return np.ascontiguousarray(vectors.cpu().numpy(), dtype=np.float32)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, special tokens included, as if nothing were cut off."""
        if not texts:
            return 0
        encoded = self._counting_tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return sum(len(ids) for ids in encoded["input_ids"])

    def fits(self, text: str) -> bool:
        """Whether the model reads the text to its end, and each of its words."""
        if UNREAD_WORD.search(text) is not None:
            return False
        if len(text) + len(self._prefix) + self._special_tokens <= self.max_tokens:
            return True
        if len(text) > self.max_tokens * MAX_CHARS_PER_TOKEN:
            return False
        return self.count_tokens([self._prefix + text]) <= self.max_tokens


def _load(folder: Path, device: str) -> Any:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            model = SentenceTransformer(str(folder), device=device, local_files_only=True)
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    return model.eval()


def weights_id(folder: Path) -> str:
    """Names the weights, wherever they were copied to: vectors and heads are only comparable under the same id."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in WEIGHT_SUFFIXES)
    safe = [file for file in files if file.suffix == ".safetensors"]
    if not files:
        raise EmbedderError(f"no weights (*.safetensors, *.bin) in {folder}")
    names = hashlib.blake2b(digest_size=8)
    for file in safe or files:
        names.update(file.relative_to(folder).as_posix().encode())
        with file.open("rb") as stream:
            names.update(hashlib.file_digest(stream, "sha256").digest())
    return names.hexdigest()
