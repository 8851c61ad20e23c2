"""One stream through GPTCache itself, as its README sets it up: SQLite, FAISS, distance, its default threshold.

Run by the Python of an environment that has gptcache, sqlalchemy and faiss-cpu, on a file that `__main__` wrote; it
imports nothing of ours. Prints hits and wrong answers, both counts.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from gptcache import Cache
from gptcache.adapter.api import get, put
from gptcache.manager import CacheBase, VectorBase, get_data_manager
from gptcache.processor.pre import get_prompt
from gptcache.similarity_evaluation import SearchDistanceEvaluation


def main(stream: Path) -> None:
    with np.load(stream) as file, tempfile.TemporaryDirectory() as folder:
        vectors, intents = file["vectors"], file["intents"]  # (n, d), (n,) in the order of the requests
        data = get_data_manager(
            CacheBase("sqlite", sql_url=f"sqlite:///{folder}/scalar.db"),
            VectorBase("faiss", dimension=vectors.shape[1], index_path=f"{folder}/faiss.index"),
            max_size=2 * len(vectors),
        )
        cache = Cache()
        cache.init(
            pre_embedding_func=get_prompt,
            embedding_func=lambda text, **_: vectors[int(text)],
            data_manager=data,
            similarity_evaluation=SearchDistanceEvaluation(),
        )
        print(*count(cache, intents.tolist()))
        data.flush()  # else it would do so at exit, when the folder is gone


def count(cache: Cache, intents: list[int]) -> tuple[int, int]:
    """A question is its number; its answer is its intent."""
    hits = wrong = 0
    for number, intent in enumerate(intents):
        served = get(str(number), cache_obj=cache)
        if served is None:
            put(str(number), str(intent), cache_obj=cache)
        else:
            hits += 1
            wrong += int(served) != intent
    return hits, wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]))
