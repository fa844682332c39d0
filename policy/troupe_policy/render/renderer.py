"""Renders chat messages to token ids, as a whole or as the addition to a context: for rollouts and for supervised
fine-tuning (SFT).

In: messages, tool schemas, tool responses; the model's Jinja chat template. Out: text, token ids, mask; the ids of the
stop tokens.
Invariant: a conversation is the concatenation of pieces (prompt, the model's turn with its stop token, tool responses
with the generation prompt, the model's turn …), each tokenised separately, exactly as a rollout appends them. So no
token of SFT spans two pieces, as none does in RL. Text that the generation prompt puts at the start of the model's turn
(`<reason>`) is part of the prompt; an assistant message that does not begin with it is rendered without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..model.tokens import Tokens

# Placeholder for the model's turn, used to find the text that the template puts around it.
PROBE = "\u2063troupe-probe\u2063"


class RenderError(RuntimeError):
    """The chat template is missing or fails, the messages cannot be rendered, or the tokenizer has no stop token; the
    message says which.
    """


@dataclass(frozen=True)
class Piece:
    """Rendered text, its token ids [n], and a mask [n] with 1 on tokens that the model samples."""

    text: str
    tokens: list[int]
    mask: list[int]


class Template:
    """Compiles a chat template, with the functions and variables that Hugging Face templates expect."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._specials = specials
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise RenderError(f"the chat template does not compile: {error}; correct it, or name another one in model.template") from error

    def render(self, messages: Sequence[dict[str, Any]], tools: list | None, generation: bool) -> str:
        try:
            return self._template.render(
                messages=list(messages), tools=tools, add_generation_prompt=generation, **self._specials
            )
        except jinja2.TemplateError as error:
            raise RenderError(f"the chat template refuses these messages: {error}; send messages that it takes, or name another one in model.template") from error


class Renderer:
    """Renderer for one model directory. template: file that replaces the directory's chat template.

    stop_tokens: ids that end a turn. digest: sha256 in hex over tokenizer and template. Raises RenderError,
    TokensError.
    """

    def __init__(self, directory: str | Path, template: str | Path | None = None) -> None:
        self.tokens = Tokens(directory)
        if template:
            source = Path(template).read_text(encoding="utf-8")
        else:
            source = _find_template(Path(directory), self.tokens)
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        self._template = Template(source, {name: self.tokens.special(name) or "" for name in names})
        eos = self.tokens.special("eos_token")
        stops = [self.tokens.id_of(text) for text in (eos, "<|im_end|>") if text]
        stops += _configured_stops(Path(directory))
        self.stop_tokens = list(dict.fromkeys(stop for stop in stops if stop is not None))
        if not self.stop_tokens:
            raise RenderError(f"the tokenizer in {directory} has no end-of-sequence token, so a turn would never end: set eos_token in "
                "tokenizer_config.json to a token that tokenizer.json has")
        self.digest = hashlib.sha256(self.tokens.source + b"\0" + source.encode()).hexdigest()
        self._probed: tuple[str, str] | None = None
        self._begins: str | None = None

    def prompt(self, messages: Sequence[dict[str, str]], tools: list | None) -> Piece:
        """Renders messages and the generation prompt, with mask 0 on all tokens."""
        return self.prompts([(messages, tools)])[0]

    def prompts(self, asked: Sequence[tuple[Sequence[dict[str, str]], list | None]]) -> list[Piece]:
        """Renders several prompts, each of messages and tools, as `prompt` does."""
        return self._contexts([self._template.render(messages, tools or None, True) for messages, tools in asked])

    def tool_responses(self, responses: Sequence[str]) -> Piece:
        """Renders tool responses and the next generation prompt, which follow the model's stop token, with mask 0 on
        all tokens.
        """
        if not responses:
            raise RenderError("the request has no tool response: send at least one")
        return self._context(self._following([{"role": "tool", "content": response} for response in responses]))

    def _following(self, messages: Sequence[dict[str, str]]) -> str:
        """Text of tool and user messages and the next generation prompt, which follow the model's stop token."""
        _, before = self._turn()
        asked = [{"role": "user", "content": "u"}, {"role": "assistant", "content": PROBE}]
        whole = self._template.render([*asked, *messages], None, True)
        at = whole.find(PROBE)
        if at < 0 or not whole.startswith(before, at + len(PROBE)):
            raise RenderError("the chat template renders a turn differently when other messages follow it: rollouts append to a "
                "context, so use a template that only appends")
        return whole[at + len(PROBE) + len(before) :]

    def conversation(self, messages: Sequence[dict[str, str]], tools: list | None) -> Piece:
        """Renders a whole conversation up to the last assistant message's stop token; mask 1 on the assistant's tokens.

        Some generation prompts end with a text that begins the model's turn (`<reason>`). An assistant message that
        begins with this text has it in the prompt, with mask 0; before another message the prompt leaves it out.
        """
        return self.conversations([messages], tools)[0]

    def conversations(self, asked: Sequence[Sequence[dict[str, str]]], tools: list | None) -> list[Piece]:
        """Renders several conversations, as `conversation` does; one call of the tokenizer encodes all their pieces."""
        parts = [self._parts(messages, tools) for messages in asked]
        encoded = iter(self.tokens.encode_all([text for part in parts for text, _ in part]))
        return [_joined(part, list(islice(encoded, len(part)))) for part in parts]

    def _parts(self, messages: Sequence[dict[str, str]], tools: list | None) -> list[tuple[str, int]]:
        """Texts of a conversation's pieces, each with its tokens' mask: 1 for the model's turns, else 0."""
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns or turns[-1] != len(messages) - 1:
            raise RenderError("a conversation for SFT must end with an assistant message")
        _, stop = self._turn()
        forced = self._forced()
        before = self._template.render(messages[: turns[0]], tools or None, True)
        parts: list[tuple[str, int]] = []
        for number, turn in enumerate(turns):
            content = messages[turn]["content"]
            parts.append((before if content.startswith(forced) else before.removesuffix(forced), 0))
            parts.append((content.removeprefix(forced) + stop, 1))
            if number + 1 < len(turns):
                between = messages[turn + 1 : turns[number + 1]]
                if not between or any(message["role"] not in ("tool", "user") for message in between):
                    raise RenderError(f"between messages {turn} and {turns[number + 1]} (counted from 0), both the assistant's, expected at least one message, and only tool responses and user messages")
                before = self._following(between)
        return parts

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokens.decode(ids)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, for engines that return no ids. They may differ from the ids that were sampled."""
        return self.tokens.encode_all(texts)

    def _context(self, text: str) -> Piece:
        return self._contexts([text])[0]

    def _contexts(self, texts: Sequence[str]) -> list[Piece]:
        encoded = self.tokens.encode_all(texts)
        return [Piece(text, ids, [0] * len(ids)) for text, ids in zip(texts, encoded, strict=True)]

    def _forced(self) -> str:
        """Text that the generation prompt puts after the header of the model's turn, such as `<reason>`; '' for most
        templates.
        """
        if self._begins is None:
            asked = [{"role": "user", "content": "u"}]
            whole = self._template.render([*asked, {"role": "assistant", "content": PROBE}], None, False)
            header, prompt = whole[: whole.index(PROBE)], self._template.render(asked, None, True)
            self._begins = prompt[len(header) :] if prompt.startswith(header) else ""
        return self._begins

    def _turn(self) -> tuple[str, str]:
        """Text that the template puts after an assistant message, and the text of the stop token with which it begins.
        """
        if self._probed is None:
            asked = [{"role": "user", "content": "u"}, {"role": "assistant", "content": PROBE}]
            whole = self._template.render(asked, None, False)
            if PROBE not in whole:
                raise RenderError("the chat template drops the content of assistant messages: name another one in model.template")
            after = whole[whole.index(PROBE) + len(PROBE) :]
            texts = [self.decode([stop]) for stop in self.stop_tokens]
            stop = next((text for text in texts if text and after.startswith(text)), None)
            if stop is None:
                raise RenderError(f"after an assistant message the chat template puts {after!r}, which begins with none of the stop tokens {texts}: name another one in model.template")
            self._probed = (after, stop)
        return self._probed


def _joined(parts: Sequence[tuple[str, int]], encoded: Sequence[list[int]]) -> Piece:
    """One piece of several laid end to end. parts: text and mask bit of each. encoded: the token ids of each text."""
    return Piece(
        "".join(text for text, _ in parts),
        [token for ids in encoded for token in ids],
        [bit for (_, bit), ids in zip(parts, encoded, strict=True) for _ in ids],
    )


def _find_template(directory: Path, tokens: Tokens) -> str:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    declared = tokens.settings.get("chat_template")
    if isinstance(declared, list):  # the directory has several templates, each with a name
        named = {entry["name"]: entry["template"] for entry in declared}
        declared = named.get("tool_use") or named.get("default")
    if not declared:
        raise RenderError(f"the model in {directory} has no chat template: set model.template in the recipe to a file, or pass --template FILE to a chat or gateway without a recipe")
    return declared


def _configured_stops(directory: Path) -> list[int]:
    """End-of-sequence ids of generation_config.json, since instruct models stop at more than one."""
    file = directory / "generation_config.json"
    ids = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators=None, sort_keys=False) -> str:
    # Replaces Jinja's filter `tojson`, which escapes for HTML; a prompt must not be escaped.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
