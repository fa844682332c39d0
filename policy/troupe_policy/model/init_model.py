"""Makes a model directory: a small causal LM with random weights and its own tokenizer, or the model of a GGUF file.

In: a specification (transformers config, corpus, chat template), or a GGUF file. Out: a directory with weights,
config and tokenizer that `transformers` loads. Invariants: with the same libraries, a specification and its files give
the same bytes; a tokenizer made from a corpus decodes encoded text to the same text; the directory is published whole
(published_directory.py).

    python -m troupe_policy.model.init_model --out DIR --spec JSON|@FILE
    python -m troupe_policy.model.init_model --out DIR --from-gguf FILE [--dtype float32|bfloat16] [--chat-template
    FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from .checkpoint import write_manifest
from .disk_full import naming_disk_full
from .published_directory import published_directory

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
SPECIAL_TOKENS = (START, END, PAD)


@dataclass(frozen=True)
class ModelSpec:
    """Specification of a new model; in JSON the names are camelCase.

    config: a transformers config with `model_type`; vocabulary size and special ids are filled in from the tokenizer.
    corpus: text to train the tokenizer on: a .jsonl file, whose string values count (keys do not), or the lines of
        any other file.
    vocabulary: upper bound on the tokenizer's tokens, with special and added ones; at least 256 + 3 + the added ones.
    chat_template: a file with a Jinja template, or None.
    added_tokens: texts that are one token each, such as '<tool_call>'; they decode like any other text.
    """

    config: dict[str, Any]
    corpus: Path
    vocabulary: int
    seed: int = 0
    chat_template: Path | None = None
    added_tokens: tuple[str, ...] = ()

    @staticmethod
    def from_json(text: str) -> ModelSpec:
        """Reads a specification. Raises ValueError that names missing and unknown fields."""
        fields = json.loads(text)
        known = {"config", "corpus", "vocabulary", "seed", "chatTemplate", "addedTokens"}
        wrong = [f"unknown field {name!r}" for name in fields if name not in known]
        wrong += [f"missing field {name!r}" for name in ("config", "corpus", "vocabulary") if name not in fields]
        if wrong:
            raise ValueError(f"model specification: {', '.join(wrong)}; required: config, corpus, vocabulary; optional: seed, chatTemplate, addedTokens")
        return ModelSpec(
            config=fields["config"],
            corpus=Path(fields["corpus"]),
            vocabulary=int(fields["vocabulary"]),
            seed=int(fields.get("seed", 0)),
            chat_template=Path(fields["chatTemplate"]) if fields.get("chatTemplate") else None,
            added_tokens=tuple(fields.get("addedTokens", ())),
        )


def digit_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Pre-tokenizer over bytes: makes every digit a separate piece and splits the rest as GPT-2 does."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def train_tokenizer(
    corpus: Path, vocabulary: int, added_tokens: Sequence[str] = (), chat_template: str | None = None
) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer on `corpus`, with single digits and ChatML's special tokens."""
    floor = 256 + len(SPECIAL_TOKENS) + len(added_tokens)
    if vocabulary < floor:
        raise ValueError(f"a vocabulary of {vocabulary} cannot hold the {floor} byte, special and added tokens: set vocabulary to {floor} or more")
    # The trainer uses one thread, so that counts are merged in one order and the result is reproducible.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = digit_pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(added_tokens),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Special and added tokens are removed from the corpus, so that no BPE merge is spent on parts of them.
    tokenizer.train_from_iterator(_without(_texts(corpus), (*SPECIAL_TOKENS, *added_tokens)), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in added_tokens])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    fast.add_special_tokens({"additional_special_tokens": [START]}, replace_extra_special_tokens=False)
    if chat_template is not None:
        fast.chat_template = chat_template
    return fast


def init_model(out: str | Path, spec: ModelSpec) -> int:
    """Writes a model with random weights and its manifest to `out`; returns the number of its parameters."""
    template = spec.chat_template.read_text() if spec.chat_template is not None else None
    tokenizer = train_tokenizer(spec.corpus, spec.vocabulary, spec.added_tokens, template)
    fields = {name: value for name, value in spec.config.items() if name != "model_type"}
    config = AutoConfig.for_model(
        spec.config["model_type"],
        **fields,
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(spec.seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if tokenizer.model_max_length > 10**9:
        tokenizer.model_max_length = getattr(config, "max_position_embeddings", tokenizer.model_max_length)
    with naming_disk_full(Path(out), "the model"), published_directory(Path(out)) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_manifest(temporary, "float32")
    return model.num_parameters()


def convert_gguf(
    out: str | Path, gguf_file: str | Path, dtype: str = "float32", chat_template: Path | None = None
) -> int:
    """Writes the model of a GGUF file, dequantised, to `out` and returns the number of its parameters.

    transformers replaces the pre-tokenizer that the GGUF names by a plain byte-level one. For `smollm` and
    `smollm2` the split of digits is restored: the models were trained with it, and without it numbers would become
    other tokens.
    """
    file = Path(gguf_file).absolute()
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    folder, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    if gguf_field(file, "tokenizer.ggml.pre") in ("smollm", "smollm2"):
        tokenizer.backend_tokenizer.pre_tokenizer = digit_pre_tokenizer()
        tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    if chat_template is not None:
        tokenizer.chat_template = chat_template.read_text()
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=kind)
    # The weights are dequantised: the saved config must not name a quantiser.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with naming_disk_full(Path(out), "the model"), published_directory(Path(out)) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return model.num_parameters()


def gguf_field(file: Path, key: str) -> str | None:
    """Text field of a GGUF file's header, or None if the header has no such field."""
    # Imported here because only this function needs gguf.
    from gguf import GGUFReader

    field = GGUFReader(file).get_field(key)
    return None if field is None else str(field.contents())


def _texts(corpus: Path) -> Iterator[str]:
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            if corpus.suffix == ".jsonl":
                if line.strip():
                    yield from _strings(json.loads(line))
            else:
                yield line


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _without(texts: Iterator[str], marks: Sequence[str]) -> Iterator[str]:
    for text in texts:
        parts = [text]
        for mark in marks:
            parts = [piece for part in parts for piece in part.split(mark)]
        yield from (part for part in parts if part)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="troupe_policy.model.init_model", description="Makes a model directory: random weights from a specification, or the model of a GGUF file.")
    parser.add_argument("--out", required=True, type=Path, help="model directory to write; an older one is replaced")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--spec", help="specification of the model as JSON, or @FILE that holds it")
    source.add_argument("--from-gguf", type=Path, help="a GGUF file to convert")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="dtype to convert a GGUF to")
    parser.add_argument("--chat-template", type=Path, help="file with a Jinja template that replaces the GGUF's")
    given = parser.parse_args(arguments)
    try:
        if given.from_gguf is not None:
            parameters = convert_gguf(given.out, given.from_gguf, given.dtype, given.chat_template)
        else:
            text = Path(given.spec[1:]).read_text() if given.spec.startswith("@") else given.spec
            parameters = init_model(given.out, ModelSpec.from_json(text))
    except (OSError, ValueError, KeyError) as error:
        why = f"the key {error} is missing" if isinstance(error, KeyError) else error
        print(f"init_model: {why}", file=sys.stderr)
        return 1
    print(json.dumps({"directory": str(given.out), "parameters": parameters}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
