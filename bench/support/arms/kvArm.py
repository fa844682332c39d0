"""One engine for the KV memory bench: requests of mixed lengths over one context, in its own process.

in   --context N, --kv-tokens N     out  one JSON line: bytes of the tensors that hold keys and values at their largest,
the bytes that kvTokens promises, tokens sampled, preemptions
The model has random weights and as many layers as small models in use have. Short rollouts and one that fills half the
context share the budget over two turns; keys and values are kept between them.
"""

from __future__ import annotations

import argparse
import json
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from troupe_policy.engine.engine import Engine
from troupe_policy.engine.loaded_model import load_model
from troupe_policy.engine.options import EngineOptions
from troupe_policy.engine.requests import Request

LAYERS, KV_HEADS, HEAD_DIM, VOCABULARY = 24, 2, 16, 500
ROWS, TURNS, TURN_TOKENS = 24, 2, 24


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--kv-tokens", type=int, required=True)
    parser.add_argument("--deterministic", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", hidden_size=64, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=given.context, vocab_size=VOCABULARY,
    )  # fmt: skip
    ended = {}
    with tempfile.TemporaryDirectory() as directory:
        AutoModelForCausalLM.from_config(config).save_pretrained(directory)
        options = EngineOptions(
            kv_tokens=given.kv_tokens, max_sequences=64, context_tokens=given.context, deterministic=given.deterministic
        )
        loaded = load_model(directory, "cpu", "float32")
    engine = Engine(loaded, options, lambda events: ended.update((e.request.trajectory, e) for _, e in events))
    draw = np.random.default_rng(1)
    lengths = [given.context // 2, *draw.integers(16, 200, ROWS - 1)]
    contexts = {f"g/{i}": draw.integers(3, VOCABULARY, n).astype(np.int32) for i, n in enumerate(lengths)}
    peak = sampled = 0
    for turn in range(TURNS):
        for i, (name, context) in enumerate(contexts.items()):
            request = Request(f"{name}#{turn}", name, context, TURN_TOKENS, seed=i, priority=i, keep=True)
            engine.submit(request)
        while engine.step():
            peak = max(peak, engine.reserved_bytes)
        for name, context in contexts.items():
            sampled += len(ended[name].tokens)
            contexts[name] = np.concatenate([context, ended[name].tokens, context[:8]])
    token_bytes = LAYERS * 2 * KV_HEADS * HEAD_DIM * loaded.dtype.itemsize
    promised = given.kv_tokens * token_bytes
    figures = {"reserved": peak, "promised": promised, "sampled": sampled, "preemptions": engine.preemptions}
    print(json.dumps(figures))


main()
