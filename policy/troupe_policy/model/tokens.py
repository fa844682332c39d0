"""The tokenizer of a model directory, without torch: text to ids and back.

in   tokenizer.json (read by the `tokenizers` library)       out  token ids, text with its special tokens kept
Invariant: `encode` inserts no token of its own. A directory without tokenizer.json is read through transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer


class TokensError(RuntimeError):
    """The directory holds no tokenizer that can be read."""


class Tokens:
    def __init__(self, directory: str | Path) -> None:
        path = Path(directory)
        self.settings = _json(path / "tokenizer_config.json")
        if (path / "tokenizer.json").is_file():
            self.source = (path / "tokenizer.json").read_bytes()
            self._tokenizer = Tokenizer.from_buffer(self.source)
            self._add_declared()
        else:
            self._tokenizer = _through_transformers(path)
            self.source = self._tokenizer.to_str().encode()
        # A length limit or padding of the training set-up has no place in a rollout.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> list[int]:
        """Token ids; the texts of special tokens in it become those tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text with special tokens kept; bytes that are no UTF-8 come out as U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def id_of(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def special(self, name: str) -> str | None:
        """The text of a special token by its role: eos_token, bos_token, pad_token, unk_token."""
        value = self.settings.get(name)
        return value.get("content") if isinstance(value, dict) else value

    @property
    def vocabulary(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def _add_declared(self) -> None:
        """Tokens that only tokenizer_config.json names."""
        declared = self.settings.get("added_tokens_decoder") or {}
        for number, token in sorted(declared.items(), key=lambda item: int(item[0])):
            if self._tokenizer.token_to_id(token["content"]) is None:
                added = AddedToken(token["content"], special=token.get("special", False), normalized=False)
                self._tokenizer.add_tokens([added])
                if self._tokenizer.token_to_id(token["content"]) != int(number):
                    raise TokensError(f"tokenizer.json lacks {token['content']!r}, which should be token {number}")


def _json(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _through_transformers(path: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True).backend_tokenizer
    except (OSError, ValueError, AttributeError) as error:
        raise TokensError(f"no tokenizer could be read from {path}: {error}") from error
