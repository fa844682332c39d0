"""Checkpoints: complete or missing, the same bits after a round trip, refused when damaged or another model's."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, same, state_of, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer
from transformers import AutoModelForCausalLM
from troupe_policy.model import checkpoint
from troupe_policy.model.checkpoint import CheckpointError, weights_digest
from troupe_policy.model.published_directory import published_directory

torch.set_num_threads(1)


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
    assert not (tmp_path / "c" / checkpoint.OPTIMIZER).exists()
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
    (tmp_path / "c" / checkpoint.OPTIMIZER).unlink()
    other = Trainer(model_dir)
    other.step(random_sequences(6, 1), OPTIONS)
    before, state = weights(other), state_of(other)
    with pytest.raises(CheckpointError, match=r"optimizer/state\.safetensors") as raised:
        other.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_corrupt"
    assert same(weights(other), before) and same(state_of(other), state) and other.optimizer.updates == 1


def test_a_checkpoint_of_an_earlier_version_has_the_optimizer_beside_the_weights(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    directory = tmp_path / "c"
    trainer.save(directory, True)
    (directory / checkpoint.OPTIMIZER).rename(directory / "optimizer.safetensors")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["optimizer"]["file"] = "optimizer.safetensors"
    (directory / "manifest.json").write_text(json.dumps(manifest))
    other = Trainer(model_dir)
    other.load(directory)
    assert same(weights(other), weights(trainer)) and same(state_of(other), state_of(trainer))
    assert other.optimizer.updates == 1


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
    digest, size = trainer.save(tmp_path / "a", True)
    content = (tmp_path / "a" / "model.safetensors").read_bytes()
    assert (digest, size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert trainer.save(tmp_path / "b", False) == (digest, size)
    assert weights_digest(tmp_path / "b") == (digest, size)
    trainer.step(random_sequences(6, 0), OPTIONS)
    assert trainer.save(tmp_path / "a", True)[0] != digest  # overwrites the old checkpoint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("existing", [True, False])
def test_a_process_that_dies_between_writing_and_renaming_leaves_the_old_checkpoint(model_dir, tmp_path, existing) -> None:
    target = tmp_path / "c"
    trainer = Trainer(model_dir)
    if existing:
        digest, _ = trainer.save(target, True)
    script = (
        "import os, sys\n"
        "from troupe_policy.model import published_directory\n"
        "from trainer_support import Trainer\n"
        "published_directory._publish = lambda temporary, target: os._exit(9)\n"
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
    with pytest.raises(CheckpointError, match=r"layers\.2|is \[") as raised:
        trainer.load(other)
    assert raised.value.code == "trainer.shape_mismatch"
    assert same(weights(trainer), before)


def test_a_directory_that_is_not_there_is_named(model_dir, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="nowhere") as raised:
        Trainer(model_dir).load(tmp_path / "nowhere")
    assert raised.value.code == "trainer.no_checkpoint"


def test_the_manifest_says_what_is_there(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    digest, size = trainer.save(tmp_path / "c", True)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert manifest == {
        "format": 1, "digest": digest, "bytes": size, "optimizer": {"file": "optimizer/state.safetensors", "updates": 1},
    }  # fmt: skip
