from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from semcache.errors import EmbedderError
from semcache.sentence_model import SentenceModel, weights_id

TEXTS = ["How do I reset my password?", "", "ein Satz auf Deutsch", "a very long text " * 200]


def test_float32_vectors_are_those_of_sentence_transformers(minilm_path: Path) -> None:
    reference = SentenceTransformer(str(minilm_path), device="cpu", local_files_only=True)
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    assert SentenceModel(minilm_path, dtype="float32").encode(TEXTS) == pytest.approx(expected, abs=1e-5)


def test_bfloat16_hardly_moves_a_vector(minilm_path: Path) -> None:
    exact = SentenceModel(minilm_path, dtype="float32").encode(TEXTS)
    rounded = SentenceModel(minilm_path, dtype="bfloat16").encode(TEXTS)
    assert (exact * rounded).sum(axis=1).min() > 0.9998


def test_vectors_have_length_one(sentence_model: SentenceModel) -> None:
    vectors = sentence_model.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, sentence_model.dimension)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0] * 4, abs=1e-5)


def test_tokens_are_counted_with_the_models_tokenizer_and_nothing_is_cut_off(sentence_model: SentenceModel) -> None:
    assert sentence_model.count_tokens([]) == 0
    assert sentence_model.count_tokens(["hello world"]) == 4  # [CLS] hello world [SEP]
    assert sentence_model.count_tokens(["hello world", "hello"]) == 7
    assert sentence_model.count_tokens(["hello " * 1000]) == 1002


def test_a_text_fits_up_to_the_models_last_token(sentence_model: SentenceModel) -> None:
    assert sentence_model.max_tokens == 256
    assert sentence_model.fits("hello " * 254)
    assert not sentence_model.fits("hello " * 255)
    assert not sentence_model.fits("x" * 100_000)


def test_a_word_that_the_model_takes_for_unknown_does_not_fit(sentence_model: SentenceModel) -> None:
    """WordPiece reads every word of more than 100 characters as the same token: any two would have cosine 1."""
    assert sentence_model.fits("ab" * 50)
    assert not sentence_model.fits("What does " + "ab" * 50 + "c mean?")


def test_the_id_belongs_to_the_weights_and_not_to_the_folder(minilm_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy"
    other.mkdir()
    (other / "model.safetensors").write_bytes((minilm_path / "model.safetensors").read_bytes())
    assert weights_id(other) == weights_id(minilm_path)
    with (other / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)
        weights.write(b"\x7f")
    assert weights_id(other) != weights_id(minilm_path)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="no sentence-transformers model"):
        SentenceModel(tmp_path)


def test_a_broken_model_is_an_embedder_error(minilm_path: Path, tmp_path: Path) -> None:
    for file in minilm_path.iterdir():
        if file.is_file() and file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(EmbedderError, match="cannot load"):
        SentenceModel(tmp_path)
