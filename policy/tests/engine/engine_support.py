"""Test support: an engine over a tiny model, driven step by step, and the full forward pass that its answers are
compared with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_models import tiny_model_dir
from transformers import AutoModelForCausalLM
from troupe_policy.engine.engine import Engine
from troupe_policy.engine.loaded_model import load_model
from troupe_policy.engine.options import EngineOptions
from troupe_policy.engine.requests import Event, Finished, Partial, Request

torch.set_num_threads(1)
MAX_STEPS = 5_000


class Driver:
    """Runs an engine's loop in the test's thread and collects its events."""

    def __init__(self, directory: Path, **options: Any) -> None:
        settings = {"kv_tokens": 4096, "max_sequences": 32, "context_tokens": 128, **options}
        self.events: list[Event] = []
        self.engine = Engine(load_model(directory, "cpu"), EngineOptions(**settings), self._collect)

    def _collect(self, events: list[tuple[Any, Event]]) -> None:
        self.events += [event for _, event in events]

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()
            ledger = self.engine.ledger
            assert ledger.kept_blocks() + int((-(-ledger.filled[ledger.running] // 16)).sum()) <= ledger.total_blocks
            assert ledger.tables.used <= ledger.total_blocks

    def drain(self) -> dict[str, Event]:
        """Steps the engine until every request is answered. Returns the last event of each, by request id."""
        for _ in range(MAX_STEPS):
            if not self.engine.step():
                return {e.request.request_id: e for e in self.events if not isinstance(e, Partial)}
        raise AssertionError("the engine does not come to an end")

    def answers(self, *requests: Request) -> list[Finished]:
        for request in requests:
            self.engine.submit(request)
        ended = self.drain()
        return [ended[request.request_id] for request in requests]


def model_dir(tmp_path: Path, name: str = "model", seed: int = 0, **changes: Any) -> Path:
    return tiny_model_dir(tmp_path / name, seed, **changes)


def random_tokens(length: int, seed: int, vocabulary: int = 97) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, vocabulary, length).astype(np.int32)


def request(name: str, length: int = 12, max_tokens: int = 20, **changes: Any) -> Request:
    """Builds a request whose prompt and seed derive from its name."""
    seed = sum(ord(c) * (i + 1) for i, c in enumerate(name))
    fields = {"trajectory": name, "context": random_tokens(length, seed), "seed": seed, **changes}
    return Request(request_id=changes.get("request_id", name), max_tokens=max_tokens, **{
        key: value for key, value in fields.items() if key != "request_id"
    })  # fmt: skip


def forward_logits(directory: Path, tokens: np.ndarray) -> torch.Tensor:
    """Logits at every position of `tokens`, from transformers' own eager attention, float32 [n, vocabulary]."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).logits[0].float()


def forward_logprobs(directory: Path, context: np.ndarray, tokens: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Logprobs of `tokens` after `context`, float32 [n]."""
    logits = forward_logits(directory, np.concatenate([context, tokens]))[len(context) - 1 : -1]
    logp = torch.log_softmax(logits / temperature, -1)
    return logp.gather(-1, torch.from_numpy(tokens.astype(np.int64))[:, None])[:, 0].numpy()
