"""Model directories made from a specification: transformers loads them, they are reproducible, and their tokenizer is
lossless.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from troupe_policy.model.init_model import ModelSpec, main
from troupe_policy.model.tokens import Tokens, TokensError

CONFIG = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 256, "tie_word_embeddings": True,
}  # fmt: skip
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture(scope="module")
def specification(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("spec")
    lines = [
        {"messages": [{"role": "user", "content": f"What is {n} times {n + 7}?"},
                      {"role": "assistant", "content": f"<tool_call>\nprint({n} * {n + 7})\n</tool_call>"}]}
        for n in range(1000, 1200)
    ]  # fmt: skip
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    (folder / "template.jinja").write_text(TEMPLATE)
    return {
        "config": CONFIG, "corpus": str(folder / "corpus.jsonl"), "vocabulary": 300, "seed": 3,
        "chatTemplate": str(folder / "template.jinja"), "addedTokens": ["<tool_call>", "</tool_call>"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def made(specification: dict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "m"
    assert main(["--out", str(out), "--spec", json.dumps(specification)]) == 0
    return out


def test_transformers_loads_the_model_and_its_ids_fit_the_tokenizer(made: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(made), PreTrainedTokenizerFast.from_pretrained(made)
    assert model.config.vocab_size == len(tokenizer) <= 300
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|pad|>" and tokenizer.bos_token is None
    assert (model.config.eos_token_id, model.config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert model(input_ids=torch.tensor([tokenizer.encode("What is 12?")])).logits.isfinite().all()


@pytest.mark.parametrize(
    "text",
    [
        "What is 1234 times 5?", "naïve — 日本 🙂\n\n\tdef f(x):\n  return x", "  two  spaces  ", "", "\x00\x1f",
        "<tool_call>\n{}\n</tool_call>", "it 's 1 , 2 .", "print('<tool_call')",
    ],
)  # fmt: skip
def test_every_text_comes_back_from_its_tokens_exactly(made: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_every_digit_is_a_token_and_so_is_every_special_and_added_text(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made)
    assert len(tokenizer.encode("9876543210")) == 10
    for text in ("<|im_start|>", "<|im_end|>", "<|pad|>", "<tool_call>", "</tool_call>"):
        assert len(tokenizer.encode(text)) == 1
    assert len(tokenizer.encode("What is")) < len("What is")  # BPE merged the corpus: a text of it takes few tokens
    assert set(tokenizer.all_special_tokens) == {"<|im_start|>", "<|im_end|>", "<|pad|>"}


def test_the_chat_template_is_the_one_given(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "7?"}], tokenize=False)
    assert text == "<|im_start|>user\n7?<|im_end|>\n"


def test_the_same_specification_gives_the_same_files_and_another_seed_other_weights(made, specification, tmp_path) -> None:
    assert main(["--out", str(tmp_path / "again"), "--spec", json.dumps(specification)]) == 0
    for file in sorted(made.iterdir()):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
    (tmp_path / "spec.json").write_text(json.dumps({**specification, "seed": 4}))
    assert main(["--out", str(tmp_path / "other"), "--spec", f"@{tmp_path / 'spec.json'}"]) == 0
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (made / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "manifest.json"])
def test_a_file_that_changes_after_the_model_was_made_is_refused_by_whoever_reads_the_tokenizer(made, tmp_path, name) -> None:
    directory = tmp_path / "m"
    shutil.copytree(made, directory)
    Tokens(directory)
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content[:-2] + bytes([content[-2] ^ 4]) + content[-1:])
    with pytest.raises(TokensError, match=name):
        Tokens(directory)


def test_a_wrong_specification_is_explained_and_writes_nothing(specification, tmp_path, capsys) -> None:
    with pytest.raises(ValueError, match="unknown field 'vocab'.*missing field 'vocabulary'"):
        ModelSpec.from_json(json.dumps({"config": CONFIG, "corpus": "x", "vocab": 300}))
    for change in ({"vocabulary": 100}, {"corpus": str(tmp_path / "nowhere")}):
        assert main(["--out", str(tmp_path / "m"), "--spec", json.dumps({**specification, **change})]) == 1
        assert capsys.readouterr().err.startswith("init_model: ")
    assert list(tmp_path.iterdir()) == []
