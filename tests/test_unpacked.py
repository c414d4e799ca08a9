"""Unpacked copies of .gguf models: whole or not used, made once, and removed by name."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gepa_lite.cli.app import app
from gepa_lite.errors import UsageError
from gepa_lite.lm.local.catalogue import MODELS
from gepa_lite.lm.local.fetch import remove
from gepa_lite.lm.local.unpacked import find_unpacked, keep_unpacked, remove_unpacked, unpacked_bytes, unpacked_path, unpacked_root

SHA, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEPA_LITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"0123456789")
    (folder / "deep").mkdir()
    (folder / "deep" / "tokens").write_text("a b c")


def damage(folder: Path, how: str) -> None:
    if how == "a byte":
        (folder / "weights").write_bytes(b"012345678X")
    elif how == "cut off":
        (folder / "weights").write_bytes(b"0123")
    elif how == "a file gone":
        (folder / "deep" / "tokens").unlink()
    elif how == "a file more":
        (folder / "more").write_text("")
    elif how == "no card":
        (folder / "unpacked.json").unlink()
    else:
        (folder / "unpacked.json").write_text('{"source"')


def test_a_copy_is_found_again_by_its_file_and_its_maker() -> None:
    assert find_unpacked(SHA, "maker 1") is None
    folder = keep_unpacked(SHA, "maker 1", write)
    assert folder == unpacked_path(SHA) == find_unpacked(SHA, "maker 1")
    assert (folder / "deep" / "tokens").read_text() == "a b c"
    assert find_unpacked(SHA, "maker 2") is None
    assert find_unpacked(OTHER, "maker 1") is None


@pytest.mark.parametrize("how", ["a byte", "cut off", "a file gone", "a file more", "no card", "half a card"])
def test_a_damaged_copy_is_not_used_and_is_made_anew(how: str) -> None:
    folder = keep_unpacked(SHA, "maker 1", write)
    damage(folder, how)
    assert find_unpacked(SHA, "maker 1") is None
    assert keep_unpacked(SHA, "maker 1", write) == find_unpacked(SHA, "maker 1") == folder
    assert not (folder / "more").exists()


def test_a_copy_of_another_version_is_replaced() -> None:
    keep_unpacked(SHA, "maker 1", write)
    keep_unpacked(SHA, "maker 2", write)
    assert find_unpacked(SHA, "maker 1") is None
    assert find_unpacked(SHA, "maker 2") is not None


def test_what_broke_off_leaves_nothing_and_what_was_there_stays() -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        keep_unpacked(SHA, "maker 1", fail)
    assert unpacked_bytes() == 0
    keep_unpacked(SHA, "maker 1", write)
    with pytest.raises(OSError, match="no room"):
        keep_unpacked(SHA, "maker 2", fail)
    assert find_unpacked(SHA, "maker 1") is not None
    killed = unpacked_root() / f"{SHA[:24]}.1234.partial"
    killed.mkdir()
    write(killed)
    keep_unpacked(SHA, "maker 2", write)
    assert not killed.exists()


def test_of_several_at_once_one_makes_it() -> None:
    gate, made = threading.Barrier(4), []

    def once(folder: Path) -> None:
        made.append(folder)
        write(folder)

    def ask(_: int) -> Path:
        gate.wait()
        return keep_unpacked(SHA, "maker 1", once)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {unpacked_path(SHA)}
    assert len(made) == 1


def test_copies_are_named_and_removed_by_the_command_line() -> None:
    assert "unpacked" not in CliRunner().invoke(app, ["models"]).stdout
    catalogued = MODELS["smollm2-135m"].sha256
    for sha in (SHA, OTHER, catalogued):
        keep_unpacked(sha, "maker 1", write)
    listed = CliRunner().invoke(app, ["models"]).stdout
    assert str(unpacked_root()) in listed
    assert "gepa-lite models clean" in listed
    found = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)["unpacked"]
    assert found == {"path": str(unpacked_root()), "bytes": unpacked_bytes()}
    one = unpacked_bytes(SHA)
    assert unpacked_bytes() == 3 * one > 45
    assert remove("smollm2-135m") == one
    assert find_unpacked(catalogued, "maker 1") is None
    assert remove_unpacked(OTHER) == one
    assert find_unpacked(SHA, "maker 1") is not None
    assert CliRunner().invoke(app, ["models", "clean"]).stdout == "0 MB freed.\n"
    assert unpacked_bytes() == 0


def write_gguf(path: Path) -> None:
    """A llama of a few thousand weights whose tokens are letters."""
    import numpy as np

    gguf: Any = pytest.importorskip("gguf")
    draw = np.random.default_rng(0)
    letters = ["<pad>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "ab"]
    size, inner = 32, 64
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 64),
        (writer.add_embedding_length, size),
        (writer.add_block_count, 1),
        (writer.add_feed_forward_length, inner),
        (writer.add_head_count, 4),
        (writer.add_head_count_kv, 4),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_vocab_size, len(letters)),
        (writer.add_tokenizer_model, "gpt2"),
        (writer.add_tokenizer_pre, "smollm"),
        (writer.add_token_list, letters),
        (writer.add_token_types, [3, 3, 3] + [1] * (len(letters) - 3)),
        (writer.add_token_merges, ["a b"]),
        (writer.add_bos_token_id, 1),
        (writer.add_eos_token_id, 2),
        (writer.add_pad_token_id, 0),
        (writer.add_chat_template, "<s>{% for message in messages %}{{ message['content'] }}{% endfor %}"),
    ):
        add(value)
    shapes = {
        "token_embd": (len(letters), size),
        "output": (len(letters), size),
        "output_norm": (size,),
        "blk.0.attn_norm": (size,),
        "blk.0.ffn_norm": (size,),
        **{f"blk.0.attn_{part}": (size, size) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (inner, size),
        "blk.0.ffn_up": (inner, size),
        "blk.0.ffn_down": (size, inner),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draw.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.heavy
def test_a_gguf_file_is_unpacked_once_and_its_copy_is_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    from gepa_lite.lm.policy import Draw, Engine

    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    read: list[bool] = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def noted(where: str, **options: Any) -> Any:
        read.append("gguf_file" in options)
        return load(where, **options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", noted)

    def sampled() -> tuple[Any, ...]:
        engine = Engine(str(path))
        ids = engine.encode([{"role": "user", "content": "abba c"}])
        engine.load()
        weights = {name: tensor.tolist() for name, tensor in engine.model.state_dict().items()}
        return ids, engine.window, engine.ends, weights, engine.ask("base", None, Draw(ids, 8, 1.0, seed=3))

    first = sampled()
    copy = next(path for path in unpacked_root().iterdir() if path.is_dir())
    assert sampled() == first
    assert read == [True, False]
    (copy / "model.safetensors").write_bytes(b"damaged")
    assert sampled() == first
    assert sampled() == first
    assert read == [True, False, True, False]


@pytest.mark.heavy
def test_a_cache_that_cannot_be_written_costs_the_copy_alone(tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("transformers")
    from gepa_lite.lm.policy import Engine

    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    cache.mkdir()
    # a file where the folder should be: root may write anywhere else
    (cache / "models").write_text("")
    with pytest.warns(RuntimeWarning, match=r"no unpacked copy of tiny\.gguf"):
        Engine(str(path)).load()


def test_a_file_that_is_not_there_is_named() -> None:
    from gepa_lite.lm.policy.home import Home

    missing = os.fspath(Path("nowhere") / "model.gguf")
    with pytest.raises(UsageError, match=r"there is no file nowhere.model\.gguf"):
        Home(missing).place()
