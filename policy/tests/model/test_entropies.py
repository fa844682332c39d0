"""Entropies of recorded tokens agree with the model's own logits, with one number per masked token."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model_dir
from transformers import AutoModelForCausalLM

from troupe_policy.model.entropies import Entropies, main, serve

TOKENS, MASK = [5, 9, 33, 2, 71, 8, 96], [0, 0, 1, 1, 0, 1, 1]


def test_entropies_and_logprobs_are_those_of_the_models_own_logits(tmp_path: Path) -> None:
    directory = tiny_model_dir(tmp_path / "m")
    logprobs, entropies = Entropies(directory, "cpu").of(TOKENS, MASK, 0.7)
    model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)
    with torch.no_grad():
        rows = (model(input_ids=torch.tensor([TOKENS])).logits[0] / 0.7).log_softmax(-1)
    picks = [at for at, one in enumerate(MASK) if one]
    assert logprobs == pytest.approx([rows[at - 1, TOKENS[at]].item() for at in picks], abs=1e-5)
    assert entropies == pytest.approx([-(rows[at - 1].exp() * rows[at - 1]).sum().item() for at in picks], abs=1e-5)


def test_lines_are_answered_in_their_order_and_one_without_sampled_tokens_is_empty(tmp_path: Path) -> None:
    asked = [{"id": "a", "tokens": TOKENS, "mask": MASK}, {"id": "b", "tokens": [1, 2], "mask": [0, 0]}]
    sink = io.StringIO()
    serve(Entropies(tiny_model_dir(tmp_path / "m"), "cpu"), 1.0, io.StringIO("\n".join(map(json.dumps, asked))), sink)
    said = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [(one["id"], len(one["entropies"])) for one in said] == [("a", 4), ("b", 0)]


def test_a_line_with_a_temperature_is_answered_at_it_and_one_without_at_that_of_the_command(tmp_path: Path) -> None:
    model = Entropies(tiny_model_dir(tmp_path / "m"), "cpu")
    asked = [{"id": at, "tokens": TOKENS, "mask": MASK, **own} for at, own in enumerate([{"temperature": 0.5}, {}])]
    sink = io.StringIO()
    serve(model, 2.0, io.StringIO("\n".join(map(json.dumps, asked))), sink)
    for line, temperature in zip(sink.getvalue().splitlines(), [0.5, 2.0], strict=True):
        assert json.loads(line)["entropies"] == pytest.approx(model.of(TOKENS, MASK, temperature)[1])


@pytest.mark.parametrize(
    ("tokens", "mask", "why"),
    [([1, 2], [1, 1], "no token before it predicts it"), ([1, 97], [0, 1], "vocabulary of 97"), ([1], [0, 1], "expected one mask entry for each token")],
)
def test_what_cannot_be_answered_is_refused(tmp_path: Path, tokens: list[int], mask: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Entropies(tiny_model_dir(tmp_path / "m"), "cpu").of(tokens, mask, 1.0)


def test_a_directory_without_a_model_is_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
