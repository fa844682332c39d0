"""Adapters: which parameters are trained, what is published, how training continues from a checkpoint, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_trainer import OPTIONS, examples, same, state_of, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, sft_options
from transformers import AutoModelForCausalLM
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.lora import own_name
from troupe_policy.trainer.trainer import LoraOptions, TrainerError

torch.set_num_threads(1)
PeftModel = pytest.importorskip("peft").PeftModel
LORA = LoraOptions(rank=4, alpha=8.0, targets=("q_proj", "down_proj"))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5, tie_word_embeddings=True)


def logits(directory: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=torch.arange(20)[None]).logits


def test_only_adapters_are_trained_and_the_first_step_sees_the_model_as_it_is(model_dir) -> None:
    trainer, whole = Trainer(model_dir, lora=LORA), Trainer(model_dir)
    assert {name.split(".")[-3] for name in trainer.parameters} == {"lora_A", "lora_B"}
    assert len(trainer.parameters) == 2 * 2 * 2
    frozen = {n: p.clone() for n, p in trainer.model.named_parameters() if not p.requires_grad}
    first = trainer.step(random_sequences(6, 1), OPTIONS)
    assert first["loss"] == pytest.approx(whole.step(random_sequences(6, 1), OPTIONS)["loss"], abs=1e-6)
    assert all(torch.equal(p, frozen[n]) for n, p in trainer.model.named_parameters() if n in frozen)


@pytest.mark.parametrize("changes", [{}, {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}])
def test_what_is_published_is_the_merged_model_under_its_own_names(changes, tmp_path) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, **changes)
    trainer = Trainer(directory, lora=LoraOptions(4, 8.0, ("all-linear",)))
    for seed in range(3):
        trainer.step(random_sequences(6, seed), OPTIONS)
    trainer.save(tmp_path / "published", False)
    names = set(dict(AutoModelForCausalLM.from_pretrained(directory).named_parameters()))
    assert set(dict(AutoModelForCausalLM.from_pretrained(tmp_path / "published").named_parameters())) == names
    assert not torch.allclose(logits(directory), logits(tmp_path / "published"), atol=1e-3)
    # The published model gives the trainer's log-probabilities.
    with torch.no_grad():
        trainer.model.set_attn_implementation("sdpa")
        own = trainer.model(input_ids=torch.arange(20)[None]).logits
    assert torch.allclose(own, logits(tmp_path / "published"), atol=1e-5)
    # The base model with the adapters, loaded by peft, gives the same log-probabilities.
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(directory), tmp_path / "published/adapter")
        assert torch.allclose(adapted(input_ids=torch.arange(20)[None]).logits, own, atol=1e-5)


def test_the_adapters_files_are_the_same_bytes_in_every_process(model_dir, tmp_path) -> None:
    program = (
        "import sys; from troupe_policy.trainer.trainer import LoraOptions, Trainer\n"
        "lora = LoraOptions(4, 8.0, ('all-linear',))\n"
        "Trainer(sys.argv[1], 'cpu', 'float32', 3, lora=lora, checkpointing=False).save(sys.argv[2], False)\n"
    )
    for name, seed in (("a", "1"), ("b", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", program, model_dir, tmp_path / name], env=environment, check=True, timeout=120)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "a/adapter" / file).read_bytes() == (tmp_path / "b/adapter" / file).read_bytes()


def test_a_checkpoint_from_before_the_adapters_were_pefts_is_read(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir, lora=LORA)
    trainer.step(random_sequences(6, 1), OPTIONS)
    trainer.save(tmp_path / "c", True)
    file, manifest = tmp_path / "c/adapter/adapter_model.safetensors", tmp_path / "c/manifest.json"
    save_file({own_name(name): tensor for name, tensor in load_file(file).items()}, file.with_name("weights.safetensors"))
    file.unlink()
    described = json.loads(manifest.read_text())
    del described["adapter"]["file"], described["files"]
    described |= {"format": 1, "optimizer": None}
    manifest.write_text(json.dumps(described))
    other = Trainer(model_dir, lora=LORA, seed=9)
    other.load(tmp_path / "c")
    assert same(weights(other), weights(trainer))


def test_adapters_and_their_optimizer_go_on_from_a_checkpoint_bit_for_bit(model_dir, tmp_path) -> None:
    straight, first = Trainer(model_dir, lora=LORA, seed=3), Trainer(model_dir, lora=LORA, seed=3)
    for seed in range(4):
        straight.step(random_sequences(6, seed), OPTIONS)
    for seed in range(2):
        first.step(random_sequences(6, seed), OPTIONS)
    first.save(tmp_path / "c", True)
    second = Trainer(model_dir, lora=LORA, seed=9)
    second.load(tmp_path / "c")
    for seed in range(2, 4):
        second.step(random_sequences(6, seed), OPTIONS)
    assert same(weights(second), weights(straight))
    assert same(state_of(second), state_of(straight))
    assert json.loads((tmp_path / "c/manifest.json").read_text())["adapter"]["rank"] == 4


def test_a_checkpoint_whose_adapters_are_gone_is_refused(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir, lora=LORA)
    trainer.save(tmp_path / "c", True)
    (tmp_path / "c/adapter/adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"adapter/adapter_model\.safetensors") as raised:
        trainer.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_corrupt"


def test_fine_tuning_trains_adapters_too(model_dir) -> None:
    trainer = Trainer(model_dir, lora=LoraOptions(8, 16.0, ("all-linear",)))
    metrics = trainer.sft(examples(48, 1), sft_options(learning_rate=2e-2, epochs=6, batch_sequences=8))
    assert metrics["loss"] < 0.8 * metrics["firstLoss"]


def test_a_checkpoint_that_does_not_fit_is_refused_with_what_does_not(model_dir, tmp_path) -> None:
    Trainer(model_dir).save(tmp_path / "whole", True)
    Trainer(model_dir, lora=LORA).save(tmp_path / "adapters", True)
    other = tiny_model_dir(tmp_path / "other", seed=6, tie_word_embeddings=True)
    cases = [
        (Trainer(model_dir, lora=LORA), "whole", "no adapters"),
        (Trainer(model_dir, lora=LoraOptions(8, 8.0, LORA.targets)), "adapters", "rank 4"),
        (Trainer(model_dir, lora=LoraOptions(4, 8.0, ("q_proj",))), "adapters", "down_proj"),
        (Trainer(other, lora=LORA), "adapters", "digest"),
    ]
    for trainer, name, said in cases:
        before = weights(trainer)
        with pytest.raises(CheckpointError, match=said) as raised:
            trainer.load(tmp_path / name)
        assert raised.value.code == "trainer.shape_mismatch"
        assert same(weights(trainer), before)


@pytest.mark.parametrize(
    ("targets", "said"),
    [(("q_proj", "kv_proj"), "kv_proj matches no linear layer.*down_proj"), (("lm_head",), "head")],
)
def test_targets_that_match_nothing_or_the_head_are_refused_with_what_there_is(model_dir, targets, said) -> None:
    with pytest.raises(TrainerError, match=said) as raised:
        Trainer(model_dir, lora=LoraOptions(4, 8.0, targets))
    assert raised.value.code == "trainer.no_lora_target"
