"""Embedders: unit vectors, texts of any kind, and the GGUF that is made of a sentence-transformers zip."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from agentkv import FakeEmbedder, LlamaEmbedder
from agentkv.engine.embed import Embedder, open_embedder
from agentkv.errors import EngineClosed, ModelUnreadable, UsageError
from agentkv.models import sentence
from agentkv.models.gguf import gguf_check

WIDTH, HEADS, LAYERS, INNER, POSITIONS = 32, 2, 2, 64, 64
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghij"),
]
ODD = ["", " ", "\0", "é" * 40, "🙂 日本語", "x " * 5000, "[CLS] [SEP]", "\ud800"]


def bert(folder: Path) -> Path:
    """A BERT with random weights, packed as sentence-transformers packs one."""
    rng = np.random.default_rng(1)
    shapes = {
        "embeddings.word_embeddings.weight": (len(PIECES), WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
    }
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", INNER, WIDTH),
            ("output.dense", WIDTH, INNER),
        ):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (WIDTH,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (WIDTH,)
    tensors = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    entries, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.tobytes()
        entries[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    config = {
        "max_position_embeddings": POSITIONS, "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": 1e-12, "type_vocab_size": 2,
    }  # fmt: skip
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("tokenizer.json", json.dumps({"model": {"vocab": {t: i for i, t in enumerate(PIECES)}}}))
        archive.writestr("model.safetensors", struct.pack("<Q", len(head)) + head + body)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    sentence.convert(bert(folder), folder / "tiny.gguf", "tiny")
    return folder / "tiny.gguf"


class TestConversion:
    def test_the_gguf_package_reads_what_was_written(self, made: Path) -> None:
        reader = GGUFReader(made)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        assert len(tensors) == 5 + LAYERS * 16
        assert tensors["blk.1.ffn_down.weight"].shape.tolist() == [INNER, WIDTH]
        assert tensors["blk.0.attn_q.weight"].data.dtype == np.float16
        assert tensors["position_embd.weight"].data.dtype == np.float32
        field = reader.fields["tokenizer.ggml.tokens"]
        tokens = [bytes(field.parts[index]).decode() for index in field.data]
        assert tokens[2:4] == ["[CLS]", "[SEP]"]
        assert tokens[5] == "\u2581a"
        assert tokens[-1] == "j"

    def test_our_own_check_finds_it_whole(self, made: Path) -> None:
        header = gguf_check(made)
        assert (header.version, header.unsized, header.data_end) == (3, 0, made.stat().st_size)

    def test_the_bytes_are_the_same_each_time(self, made: Path, tmp_path: Path) -> None:
        sentence.convert(made.with_name("model.zip"), tmp_path / "again.gguf", "tiny")
        digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (made, tmp_path / "again.gguf")}
        assert len(digests) == 1

    def test_a_vocabulary_with_gaps_is_refused(self, made: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(made.with_name("model.zip")) as old, zipfile.ZipFile(tmp_path / "z.zip", "w") as new:
            for name in ("config.json", "model.safetensors"):
                new.writestr(name, old.read(name))
            new.writestr("tokenizer.json", json.dumps({"model": {"vocab": {"[CLS]": 0, "[SEP]": 2}}}))
        with pytest.raises(ValueError, match="gaps"):
            sentence.convert(tmp_path / "z.zip", tmp_path / "out.gguf", "tiny")


class EmbedderContract:
    @pytest.fixture
    def embedder(self) -> Embedder:
        raise NotImplementedError

    def test_rows_are_of_length_one(self, embedder: Embedder) -> None:
        rows = embedder.embed(["a cab", "a bad cab", "jig"])
        assert rows.shape == (3, embedder.dimensions)
        assert rows.dtype == np.float32
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0, abs=1e-5)

    def test_the_same_text_has_the_same_vector(self, embedder: Embedder) -> None:
        alone, among = embedder.embed(["a bad cab"]), embedder.embed(["jig", "a bad cab"])
        assert np.array_equal(alone[0], among[1])

    def test_no_texts_are_no_rows(self, embedder: Embedder) -> None:
        assert embedder.embed([]).shape == (0, embedder.dimensions)

    @pytest.mark.parametrize("text", ODD)
    def test_any_text_has_one(self, embedder: Embedder, text: str) -> None:
        row = embedder.embed([text])[0]
        assert np.isfinite(row).all()


class TestFake(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return FakeEmbedder()

    def test_alike_in_spelling_is_alike(self) -> None:
        rows = FakeEmbedder().embed(["refund a receipt", "refunds and receipts", "colour of the sky"])
        assert rows[0] @ rows[1] > 0.5 > rows[0] @ rows[2]


class TestLlama(EmbedderContract):
    @pytest.fixture
    def embedder(self, made: Path) -> Iterator[Embedder]:
        with LlamaEmbedder.open(made) as opened:
            yield opened

    def test_texts_differ(self, embedder: Embedder) -> None:
        rows = embedder.embed(["a bad cab", "jig"])
        assert abs(float(rows[0] @ rows[1])) < 0.999

    def test_after_close_it_says_so(self, made: Path) -> None:
        embedder = LlamaEmbedder.open(made)
        embedder.close()
        embedder.close()
        with pytest.raises(EngineClosed):
            embedder.embed(["a"])

    def test_identity_is_the_files(self, made: Path) -> None:
        with LlamaEmbedder.open(made) as one, LlamaEmbedder(made, name="x", sha256="0" * 64) as other:
            assert one.identity != other.identity
            assert len(one.identity) == 64

    def test_a_file_that_is_not_a_model(self, tmp_path: Path) -> None:
        (tmp_path / "no.gguf").write_bytes(b"GGUF no")
        with pytest.raises(ModelUnreadable):
            LlamaEmbedder.open(tmp_path / "no.gguf")


def test_what_may_be_given() -> None:
    fake = FakeEmbedder()
    assert open_embedder(None) is None
    assert open_embedder(fake) is fake
    with pytest.raises(UsageError, match="not int"):
        open_embedder(5)  # type: ignore[arg-type]


@pytest.mark.model
def test_the_catalogues_embedder_knows_meaning() -> None:
    with LlamaEmbedder.open("all-minilm-l6-v2") as embedder:
        rows = embedder.embed(["How do I get my money back?", "The refund policy of the shop.", "A recipe for soup."])
        assert embedder.dimensions == 384
    assert rows[0] @ rows[1] > 0.3 > rows[0] @ rows[2]
