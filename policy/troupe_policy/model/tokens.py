"""Tokenizer of a model directory, without torch: text to ids and back.

In: tokenizer.json, read by the `tokenizers` library; a directory without one is read through transformers.
Out: token ids; text with special tokens kept. Invariants: `encode` inserts no token that is not in the text; a
directory whose config or tokenizer files differ from its manifest is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders

from .manifest import CheckpointError, beside_weights, check_model


class TokensError(RuntimeError):
    """The directory holds no usable tokenizer; the message says why."""


class Tokens:
    """Tokenizer of one model. `source`: the tokenizer's bytes, for digests. `settings`: content of
    tokenizer_config.json.
    """

    def __init__(self, directory: str | Path) -> None:
        path = Path(directory)
        try:
            check_model(path, beside_weights)
        except CheckpointError as error:
            raise TokensError(str(error)) from error
        self.settings = _json(path / "tokenizer_config.json")
        if (path / "tokenizer.json").is_file():
            self.source = (path / "tokenizer.json").read_bytes()
            self._tokenizer = Tokenizer.from_buffer(self.source)
            self._add_declared()
        else:
            self._tokenizer = _through_transformers(path)
            self.source = self._tokenizer.to_str().encode()
        # tokenizer.json may hold a length limit and padding from training; rollouts use neither.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. Texts of special tokens in it become those tokens."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as `encode` gives them."""
        # encode_batch_fast keeps no offsets, which nobody reads, and takes two thirds of the time of encode_batch.
        return [one.ids for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, with special tokens kept; bytes that are not UTF-8 become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def token_bytes(self) -> list[bytes]:
        """Bytes of each token id, if `decode` joins the tokens' bytes and reads them as UTF-8, as byte-level tokenizers
        do; else an empty list.
        """
        if not isinstance(self._tokenizer.decoder, decoders.ByteLevel):
            return []
        last = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        return [_bytes_of(self._tokenizer.id_to_token(number) or "") for number in range(last + 1)]

    def id_of(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def special(self, name: str) -> str | None:
        """Text of a special token by its role (eos_token, bos_token, pad_token, unk_token), or None."""
        value = self.settings.get(name)
        return value.get("content") if isinstance(value, dict) else value

    @property
    def vocabulary(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def _add_declared(self) -> None:
        """Adds tokens that only tokenizer_config.json names. Raises TokensError if a token would get another id than
        declared there.
        """
        declared = self.settings.get("added_tokens_decoder") or {}
        for number, token in sorted(declared.items(), key=lambda item: int(item[0])):
            if self._tokenizer.token_to_id(token["content"]) is None:
                added = AddedToken(token["content"], special=token.get("special", False), normalized=False)
                self._tokenizer.add_tokens([added])
                if self._tokenizer.token_to_id(token["content"]) != int(number):
                    raise TokensError(
                        f"tokenizer.json lacks {token['content']!r}, and tokenizer_config.json declares it as token {number}, "
                        "an id that it cannot get: give a tokenizer.json that has it"
                    )


def _byte_characters() -> dict[int, int]:
    """Maps each character of a byte-level vocabulary to the byte that it stands for (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: byte for byte in printable}, **{256 + i: byte for i, byte in enumerate(others)}}


_BYTES = _byte_characters()


def _bytes_of(token: str) -> bytes:
    """Bytes of a token of a byte-level vocabulary. A token with any other character stands for its own text."""
    try:
        return bytes([_BYTES[ord(character)] for character in token])
    except KeyError:
        return token.encode()


def _json(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _through_transformers(path: Path) -> Tokenizer:
    # Imported here: it takes seconds, and few directories need it.
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True).backend_tokenizer
    except (OSError, ValueError, AttributeError) as error:
        raise TokensError(f"no tokenizer could be read from {path}: {error}; give the directory of a model with its tokenizer.json") from error
