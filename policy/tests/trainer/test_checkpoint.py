"""Checkpoints: complete or missing, the same bits after a round trip, refused when damaged or another model's."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, same, state_of, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, gated_writer, save_format_1
from transformers import AutoModelForCausalLM
from troupe_policy.model.checkpoint import CheckpointError, weights_digest
from troupe_policy.model.published_directory import published_directory
from troupe_policy.trainer import checkpoint_writer
from troupe_policy.trainer.ranks.sharded_files import HashedStream

torch.set_num_threads(1)


def published(manifest: dict) -> tuple[str, int]:
    return manifest["digest"], manifest["bytes"]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5, tie_word_embeddings=True)
    (directory / "tokenizer.json").write_text('{"of": "the user"}')
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory


def test_training_goes_on_from_a_checkpoint_bit_for_bit_as_if_it_had_never_stopped(model_dir, tmp_path) -> None:
    whole = Trainer(model_dir)
    for seed in range(4):
        whole.step(random_sequences(6, seed), OPTIONS)
    first = Trainer(model_dir)
    for seed in range(2):
        first.step(random_sequences(6, seed), OPTIONS)
    first.save(tmp_path / "c", True)
    second = Trainer(tmp_path / "c")
    second.load(tmp_path / "c")
    assert second.optimizer.updates == 2
    for seed in range(2, 4):
        second.step(random_sequences(6, seed), OPTIONS)
    assert same(weights(second), weights(whole))
    assert same(state_of(second), state_of(whole))


def test_a_checkpoint_without_optimizer_starts_a_fresh_one(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", False)
    assert not (tmp_path / "c" / "training").exists()
    trainer.load(tmp_path / "c")
    assert state_of(trainer) == {} and trainer.optimizer.updates == 0


def test_beside_the_config_lie_the_model_s_weights_alone_as_engines_load_all_that_is_there(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    assert [file.name for file in (tmp_path / "c").glob("*.safetensors")] == ["model.safetensors"]


def test_a_checkpoint_whose_optimizer_is_gone_is_refused_and_changes_nothing(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    (tmp_path / "c" / "training/__0_0.distcp").unlink()
    other = Trainer(model_dir)
    other.step(random_sequences(6, 1), OPTIONS)
    before, state = weights(other), state_of(other)
    with pytest.raises(CheckpointError, match=r"training/__0_0\.distcp") as raised:
        other.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_corrupt"
    assert same(weights(other), before) and same(state_of(other), state) and other.optimizer.updates == 1


@pytest.mark.parametrize("optimizer", ["optimizer/state.safetensors", "optimizer.safetensors"])
def test_training_goes_on_from_a_checkpoint_of_an_earlier_version_which_has_whole_tensors(model_dir, tmp_path, optimizer) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.reset(optimizer=False, reference=True)
    save_format_1(trainer, tmp_path / "c", optimizer)
    other = Trainer(model_dir)
    other.load(tmp_path / "c")
    assert same(weights(other), weights(trainer)) and same(state_of(other), state_of(trainer))
    assert other.optimizer.updates == 1 and other.reference.is_taken
    other.save(tmp_path / "d", True)
    third = Trainer(model_dir)
    third.load(tmp_path / "d")
    assert same(state_of(third), state_of(trainer)) and same(third.reference.sharded(), trainer.reference.sharded())


def test_transformers_loads_a_checkpoint_and_the_tokenizer_files_are_the_ones_given(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "c")
    assert same({name: p.detach() for name, p in loaded.named_parameters()}, weights(trainer))
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "c" / name).read_bytes() == (model_dir / name).read_bytes()


def test_the_digest_is_the_sha256_of_the_weight_files_and_names_the_weights(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    digest, size = published(trainer.save(tmp_path / "a", True))
    content = (tmp_path / "a" / "model.safetensors").read_bytes()
    assert (digest, size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert published(trainer.save(tmp_path / "b", False)) == (digest, size)
    assert weights_digest(tmp_path / "b") == (digest, size)
    trainer.step(random_sequences(6, 0), OPTIONS)
    assert trainer.save(tmp_path / "a", True)["digest"] != digest  # overwrites the old checkpoint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("existing", [True, False])
def test_a_process_that_dies_between_writing_and_renaming_leaves_the_old_checkpoint(model_dir, tmp_path, existing) -> None:
    target = tmp_path / "c"
    trainer = Trainer(model_dir)
    if existing:
        digest = trainer.save(target, True)["digest"]
    script = (
        "import os, sys\n"
        "from troupe_policy.model import published_directory\n"
        "from trainer_support import Trainer\n"
        "publish = published_directory._publish\n"
        "die = lambda *of: os._exit(9) if of[1].name == 'c' else publish(*of)\n"
        "published_directory._publish = die\n"
        "trainer = Trainer(sys.argv[1])\n"
        "trainer.parameters['model.norm.weight'].data += 1\n"
        "trainer.save(sys.argv[2], True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, "-c", script, str(model_dir), str(target)], env=environment, timeout=120)
    assert died.returncode == 9
    assert len(list(tmp_path.glob(".c.*.tmp"))) == 1
    assert target.exists() == existing
    if existing:
        assert weights_digest(target)[0] == digest
        trainer.load(target)
    trainer.save(target, True)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]  # the leftover of the dead process is removed too


def test_a_save_that_fails_leaves_nothing_behind(tmp_path) -> None:
    with pytest.raises(OSError, match="full"), published_directory(tmp_path / "c") as temporary:
        (temporary / "half").write_text("x")
        raise OSError("disk full")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused_and_changes_nothing(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "c", True)
    file = tmp_path / "c" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    before = weights(trainer)
    with pytest.raises(CheckpointError) as raised:
        trainer.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_corrupt"
    assert same(weights(trainer), before)


@pytest.mark.parametrize("changes", [{"hidden_size": 16}, {"num_hidden_layers": 3}, {"vocab_size": 98}])
def test_a_checkpoint_of_another_shape_is_refused_naming_what_differs(model_dir, tmp_path, changes) -> None:
    other = tiny_model_dir(tmp_path / "other", tie_word_embeddings=True, **changes)
    trainer = Trainer(model_dir)
    before = weights(trainer)
    with pytest.raises(CheckpointError, match=r"layers\.2|has the shape \[") as raised:
        trainer.load(other)
    assert raised.value.code == "trainer.shape_mismatch"
    assert same(weights(trainer), before)


def test_a_directory_that_is_not_there_is_named(model_dir, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="nowhere") as raised:
        Trainer(model_dir).load(tmp_path / "nowhere")
    assert raised.value.code == "trainer.no_checkpoint"


def test_the_manifest_has_the_sha256_of_every_file_and_says_what_is_there(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.reset(optimizer=False, reference=True)
    digest, size = published(trainer.save(tmp_path / "c", True))
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    files = manifest.pop("files")
    assert manifest == {
        "format": 2, "digest": digest, "bytes": size, "dtype": "float32",
        "optimizer": {"directory": "training", "updates": 1, "ranks": 1}, "reference": {"directory": "reference"},
    }  # fmt: skip
    there = [file for file in (tmp_path / "c").rglob("*") if file.is_file() and file.name != "manifest.json"]
    assert files == {
        file.relative_to(tmp_path / "c").as_posix(): {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": file.stat().st_size,
        } for file in there
    }  # fmt: skip
    assert {"model.safetensors", "training/__0_0.distcp", "training/.metadata", "reference/.metadata"} <= files.keys()


def test_a_damaged_file_of_the_state_is_refused_and_changes_nothing(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    for name in ("training/__0_0.distcp", "training/.metadata"):
        file = tmp_path / "c" / name
        content = file.read_bytes()
        file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
        other = Trainer(model_dir)
        before = weights(other)
        with pytest.raises(CheckpointError) as raised:
            other.load(tmp_path / "c")
        assert raised.value.code == "trainer.checkpoint_corrupt"
        assert same(weights(other), before)
        file.write_bytes(content)


def test_a_checkpoint_holds_the_state_at_its_beginning_though_training_goes_on_while_it_is_written(
    model_dir, tmp_path, monkeypatch
) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "weights", False)
    before = weights(trainer)
    state = {name: value.clone() for name, value in state_of(trainer).items()}
    gate, writing = gated_writer(monkeypatch)
    saving = trainer.checkpoint(tmp_path / "c", tmp_path / "weights")
    assert writing.wait(60)
    trainer.step(random_sequences(6, 1), OPTIONS)  # a whole step, while the writer stands still
    assert not saving.done() and not (tmp_path / "c").exists()
    gate.set()
    saved = saving.result(60)
    assert saved.manifest == hashlib.sha256((tmp_path / "c/manifest.json").read_bytes()).hexdigest()
    other = Trainer(model_dir)
    other.load(tmp_path / "c")
    assert same(weights(other), before) and same(state_of(other), state)
    assert not same(weights(trainer), before)


def test_an_update_waits_until_the_checkpoint_has_its_copy(model_dir, tmp_path, monkeypatch) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "weights", False)
    before = weights(trainer)
    gate = threading.Event()
    copy = checkpoint_writer.host_copy

    def slow(tensors):
        assert gate.wait(60)
        return copy(tensors)

    monkeypatch.setattr(checkpoint_writer, "host_copy", slow)
    saving = trainer.checkpoint(tmp_path / "c", tmp_path / "weights")
    stepping = threading.Thread(target=lambda: trainer.step(random_sequences(6, 1), OPTIONS))
    stepping.start()
    stepping.join(0.5)
    assert stepping.is_alive() and same(weights(trainer), before)
    gate.set()
    stepping.join(60)
    saving.result(60)
    other = Trainer(model_dir)
    other.load(tmp_path / "c")
    assert same(weights(other), before) and not same(weights(trainer), before)


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_and_the_next_one_is(model_dir, tmp_path, monkeypatch) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "weights", False)
    with monkeypatch.context() as broken:
        broken.setattr(HashedStream, "write", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises((OSError, CheckpointError), match="disk full"):
            trainer.checkpoint(tmp_path / "c", tmp_path / "weights").result(60)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["weights"]
    trainer.checkpoint(tmp_path / "c", tmp_path / "weights").result(60)
    assert Trainer(model_dir).load(tmp_path / "c") is None


def test_weights_are_published_in_bfloat16_and_training_goes_on_in_float32(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir, published_dtype="bfloat16")
    trainer.step(random_sequences(6, 0), OPTIONS)
    manifest = trainer.save(tmp_path / "c", True)
    assert manifest["dtype"] == "bfloat16"
    assert json.loads((tmp_path / "c/config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "c", dtype="auto")
    assert same({n: p.detach() for n, p in loaded.named_parameters()}, {n: p.bfloat16() for n, p in weights(trainer).items()})
    other = Trainer(model_dir)
    other.load(tmp_path / "c")
    assert same(weights(other), weights(trainer)) and same(state_of(other), state_of(trainer))
