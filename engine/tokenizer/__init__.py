"""Text to token ids and back. Knows no model and no chat template.

`tokenizer.py` encodes and decodes; `gguf.py` and `folder.py` build it from a model's files.
"""

from engine.tokenizer.tokenizer import GUARD, SpacePrefix, Tokenizer

__all__ = ["GUARD", "SpacePrefix", "Tokenizer"]
