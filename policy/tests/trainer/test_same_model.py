"""A checkpoint belongs to one model: training does not continue from it with another config, tokenizer or chat template."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, same, state_of, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, save_format_1
from transformers import AutoConfig, AutoModelForCausalLM
from troupe_policy.engine.loaded_model import WeightsError, load_model, update_weights
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.trainer import LoraOptions, TrainerError

torch.set_num_threads(1)


def given_model(directory: Path, **changes: object) -> Path:
    tiny_model_dir(directory, seed=5, **changes)
    (directory / "tokenizer.json").write_text('{"of": "the user"}')
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory


def with_config(**fields: object) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        config = model / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))

    return change


CHANGES = [
    (with_config(rope_parameters={"rope_theta": 100.0, "rope_type": "default"}), r"config\.json: rope_parameters\.rope_theta is 10000\.0 there and 100\.0 here"),
    (with_config(rms_norm_eps=1e-2), r"config\.json: rms_norm_eps is 1e-06 there and 0\.01 here"),
    (with_config(hidden_act="gelu"), r"config\.json: hidden_act is \"silu\" there and \"gelu\" here"),
    (lambda model: (model / "tokenizer.json").write_text('{"of": "another"}'), r"tokenizer\.json differs"),
    (lambda model: (model / "chat_template.jinja").unlink(), r"chat_template\.jinja is only there"),
    (lambda model: (model / "special_tokens_map.json").write_text("{}"), r"special_tokens_map\.json is only here"),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_a_resume_with_a_changed_model_directory_is_refused_and_changes_nothing(tmp_path, change, expected) -> None:
    trainer = Trainer(given_model(tmp_path / "m"))
    trainer.step(random_sequences(6, 0), OPTIONS)
    trainer.save(tmp_path / "c", True)
    change(tmp_path / "m")
    other = Trainer(tmp_path / "m")
    before, state = weights(other), state_of(other)
    with pytest.raises(CheckpointError, match=expected) as raised:
        other.load(tmp_path / "c")
    assert raised.value.code == "trainer.model_differs"
    assert same(weights(other), before) and same(state_of(other), state)


def test_the_config_beside_whole_tensors_is_compared_too(tmp_path) -> None:
    trainer = Trainer(given_model(tmp_path / "m"))
    save_format_1(trainer, tmp_path / "old", "optimizer/state.safetensors")
    trainer.save(tmp_path / "weights", False)
    with_config(rms_norm_eps=1e-2)(tmp_path / "m")
    other = Trainer(tmp_path / "m")
    for name in ("old", "weights"):
        with pytest.raises(CheckpointError, match="rms_norm_eps"):
            other.load(tmp_path / name)


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"tie_word_embeddings": True}, {"model_type": "qwen2", "rope_theta": 1_000_000.0}, {"model_type": "mistral"},
        {"model_type": "qwen3", "head_dim": 16}, {"use_cache": False},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_that_a_run_began_with_is_accepted_whatever_its_architecture_and_published_dtype(tmp_path, changes, dtype) -> None:
    model = given_model(tmp_path / "m", **changes)
    trainer = Trainer(model, published_dtype=dtype)
    digest = trainer.save(tmp_path / "c", True)["digest"]
    Trainer(model, published_dtype=dtype).load(tmp_path / "c")
    loaded = load_model(model, "cpu", "float32")
    manifest = hashlib.sha256((tmp_path / "c/manifest.json").read_bytes()).hexdigest()
    update_weights(loaded, tmp_path / "c", digest, manifest)


def test_adapters_are_accepted_with_the_model_that_they_were_trained_on(tmp_path) -> None:
    model = given_model(tmp_path / "m")
    lora = LoraOptions(4, 8, ("q_proj", "v_proj"))
    Trainer(model, lora=lora).save(tmp_path / "c", True)
    Trainer(model, lora=lora).load(tmp_path / "c")
    with_config(rms_norm_eps=1e-2)(model)
    with pytest.raises(CheckpointError, match="rms_norm_eps"):
        Trainer(model, lora=lora).load(tmp_path / "c")


def test_an_engine_of_another_config_refuses_new_weights(tmp_path) -> None:
    model = given_model(tmp_path / "m")
    said = Trainer(model).save(tmp_path / "c", False)["digest"]
    with_config(rms_norm_eps=1e-2)(model)
    loaded = load_model(model, "cpu", "float32")
    with pytest.raises(WeightsError, match="rms_norm_eps is 1e-06 there and 0.01 here"):
        update_weights(loaded, tmp_path / "c", said)


@pytest.mark.parametrize("name", ["extra.safetensors", "added_tokens.json", "pytorch_model.bin", "adapter_config.json"])
def test_a_file_that_the_manifest_does_not_name_and_libraries_would_load_is_refused(tmp_path, name) -> None:
    trainer = Trainer(given_model(tmp_path / "m"))
    trainer.save(tmp_path / "c", True)
    for harmless in ("README.md", "eval_results.json", "LICENSE.txt", "training_args.bin", "notes.py"):
        (tmp_path / "c" / harmless).write_text("{}")
    trainer.load(tmp_path / "c")
    (tmp_path / "c" / name).write_text("{}")
    for load in (trainer.load, Trainer, lambda directory: load_model(directory, "cpu", "float32")):
        with pytest.raises((CheckpointError, TrainerError), match=rf"{name} would be loaded, but the manifest beside it does not name it"):
            load(tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    trainer.load(tmp_path / "c")


def test_a_model_without_a_generation_config_is_accepted_although_its_checkpoints_have_one(tmp_path) -> None:
    model = given_model(tmp_path / "m")
    (model / "generation_config.json").unlink()
    Trainer(model).save(tmp_path / "c", True)
    assert (tmp_path / "c/generation_config.json").is_file()
    Trainer(model).load(tmp_path / "c")


def test_a_checkpoint_without_its_manifest_is_no_model_to_start_with(tmp_path) -> None:
    Trainer(given_model(tmp_path / "m")).save(tmp_path / "c", True)
    (tmp_path / "c/manifest.json").unlink()
    with pytest.raises(TrainerError, match=r"manifest\.json is missing"):
        Trainer(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing"):
        load_model(tmp_path / "c", "cpu", "float32")
    shutil.rmtree(tmp_path / "c/training")  # now it is any model
    load_model(tmp_path / "c", "cpu", "float32")


def test_a_manifest_of_another_program_is_none_of_ours(tmp_path) -> None:
    model = given_model(tmp_path / "m")
    for content in ({"files": ["a", "b"]}, {"files": {"config.json": "abc"}, "format": "pt"}, []):
        (model / "manifest.json").write_text(json.dumps(content))
        Trainer(model)
        load_model(model, "cpu", "float32")


COMPOSITE = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 97, "dtype": "bfloat16", "sliding_window": 16,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    },
    "mm_tokens_per_image": 4,
}  # fmt: skip


def test_the_parts_of_a_composite_model_are_compared_without_their_dtypes(tmp_path) -> None:
    fields = dict(COMPOSITE)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / "m")
    with_config(dtype="bfloat16")(tmp_path / "m")
    trainer = Trainer(tmp_path / "m")
    trainer.save(tmp_path / "c", True)
    Trainer(tmp_path / "m").load(tmp_path / "c")
    shape = json.loads((tmp_path / "m/config.json").read_text())
    part = shape.get("text_config", shape)
    part["rms_norm_eps"] = 1e-2
    (tmp_path / "m/config.json").write_text(json.dumps(shape))
    with pytest.raises(CheckpointError, match=r"text_config\.rms_norm_eps is 1e-06 there and 0\.01 here") as raised:
        Trainer(tmp_path / "m").load(tmp_path / "c")
    assert raised.value.code == "trainer.model_differs" and len(str(raised.value)) < 2000
