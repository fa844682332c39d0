"""Every file of a checkpoint is compared before one is loaded: by trainers, and by engines what they load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, same, state_of, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer
from troupe_policy.engine.loaded_model import WeightsError, load_model, update_weights
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.trainer import LoraOptions, TrainerError

torch.set_num_threads(1)


def flip(file: Path, at: float) -> bytes:
    """Flips one bit at this share of the file, and returns its former content."""
    before = file.read_bytes()
    index = min(len(before) - 1, int(at * len(before)))
    file.write_bytes(before[:index] + bytes([before[index] ^ 4]) + before[index + 1 :])
    return before


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()


def corrupt(trainer: Trainer, directory: Path, expected: str, name: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        trainer.load(directory, expected)
    assert raised.value.code == "trainer.checkpoint_corrupt"
    assert name in str(raised.value) and "another checkpoint" in str(raised.value)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)
    (directory / "tokenizer.json").write_text('{"of": "the user"}')
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory


@pytest.fixture(scope="module")
def saved(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint with weights, config, tokenizer, moments, a reference and adapters, and its manifest's digest."""
    directory = tmp_path_factory.mktemp("saved") / "c"
    trainer = Trainer(model_dir, lora=LoraOptions(4, 8, ("q_proj", "v_proj")))
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.reset(optimizer=False, reference=True)
    trainer.save(directory, True)
    return directory, digest(directory)


def test_the_manifest_names_every_file_of_the_checkpoint(saved) -> None:
    directory, _ = saved
    there = {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}
    assert there == {*json.loads((directory / "manifest.json").read_text())["files"], "manifest.json"}
    kinds = {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "training/.metadata"}
    assert kinds | {"training/__0_0.distcp", "reference/__0_0.distcp", "adapter/adapter_config.json"} <= there


def test_one_flipped_bit_or_a_deletion_of_any_file_is_refused_with_its_name_and_changes_nothing(model_dir, saved) -> None:
    directory, expected = saved
    other = Trainer(model_dir, lora=LoraOptions(4, 8, ("q_proj", "v_proj")), seed=3)
    other.step(random_sequences(6, 1), OPTIONS)
    before, moments = weights(other), state_of(other)
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    assert len(files) >= 10
    for file in files:
        for at in (0.0, 0.37, 1.0):
            content = flip(file, at)
            corrupt(other, directory, expected, str(file))
            file.write_bytes(content)
        content = file.read_bytes()
        file.unlink()
        corrupt(other, directory, expected, str(file))
        file.write_bytes(content)
    assert same(weights(other), before) and same(state_of(other), moments) and other.optimizer.updates == 1
    other.load(directory, expected)
    assert not same(weights(other), before)


def test_a_changed_file_whose_manifest_was_changed_with_it_is_refused_by_the_log_s_digest(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    expected = digest(tmp_path / "c")
    config, manifest = tmp_path / "c/config.json", tmp_path / "c/manifest.json"
    changed = json.dumps({**json.loads(config.read_text()), "rope_theta": 12345.0})
    config.write_text(changed)
    corrupt(trainer, tmp_path / "c", expected, "config.json")
    said = json.loads(manifest.read_text())
    said["files"]["config.json"] = {"sha256": hashlib.sha256(changed.encode()).hexdigest(), "bytes": len(changed)}
    manifest.write_text(json.dumps(said))
    corrupt(trainer, tmp_path / "c", expected, "manifest.json")


def test_a_checkpoint_without_a_manifest_is_refused_where_the_log_has_its_digest_and_read_where_it_has_none(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "c", False)
    expected = digest(tmp_path / "c")
    (tmp_path / "c/manifest.json").unlink()
    corrupt(trainer, tmp_path / "c", expected, "manifest.json")
    trainer.load(tmp_path / "c")


def test_a_checkpoint_of_a_newer_format_is_refused_with_both_formats(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "c", True)
    before = weights(trainer)
    file = tmp_path / "c/manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 3}))
    with pytest.raises(CheckpointError, match=r"manifest.json has the format 3, but this version reads formats up to 2") as raised:
        trainer.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_newer"
    assert same(weights(trainer), before)


def test_published_weights_are_compared_file_by_file_before_a_trainer_takes_them(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "c", False)
    flip(tmp_path / "c/tokenizer.json", 0.5)
    corrupt(trainer, tmp_path / "c", "", "tokenizer.json")


def test_an_engine_refuses_new_weights_of_which_any_file_differs_and_keeps_its_own(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    loaded = load_model(model_dir, "cpu", "float32")
    before = {name: value.clone() for name, value in loaded.model.named_parameters()}
    trainer.step(random_sequences(6, 0), OPTIONS)
    said = trainer.save(tmp_path / "c", False)["digest"]
    expected = digest(tmp_path / "c")
    for file in sorted(file for file in (tmp_path / "c").iterdir() if file.is_file()):
        content = flip(file, 0.6)
        with pytest.raises(WeightsError, match=file.name):
            update_weights(loaded, tmp_path / "c", said, expected)
        file.unlink()
        with pytest.raises(WeightsError, match="safetensors" if file.suffix == ".safetensors" else file.name):
            update_weights(loaded, tmp_path / "c", said, expected)
        file.write_bytes(content)
    assert same({name: value for name, value in loaded.model.named_parameters()}, before)
    with pytest.raises(WeightsError, match="another digest"):
        update_weights(loaded, tmp_path / "c", "0" * 64, expected)
    update_weights(loaded, tmp_path / "c", said, expected)
    assert not same({name: value for name, value in loaded.model.named_parameters()}, before)


def test_a_model_whose_config_differs_from_its_manifest_is_loaded_by_no_engine_and_no_trainer(model_dir, tmp_path) -> None:
    Trainer(model_dir).save(tmp_path / "c", False)
    load_model(tmp_path / "c", "cpu", "float32")
    config = tmp_path / "c/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rope_theta": 12345.0}))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model(tmp_path / "c", "cpu", "float32")
    with pytest.raises(TrainerError, match=r"config\.json") as raised:
        Trainer(tmp_path / "c")
    assert raised.value.code == "trainer.no_model"
