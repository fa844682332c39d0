"""`python -m troupe_policy.render.measure`: renders prompts once and says how long they are, without a server.

In: one JSON object on stdin: {model, template, tools, prompts, conversations}; the last two: [[{role, content}, …], …];
model: a model directory, or null for a model whose tokenizer does not exist yet, which needs a template file. Out: one
line of JSON with the length of each prompt and then of each conversation: {"tokens": [n, …]}, without a model
{"characters": [n, …]}, or {"fault": why}. With a model, the text is the one that a run's renderer makes, and the
template must also render a tool response; without one, it is what the template makes with empty special tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..model.tokens import TokensError
from .renderer import Renderer, RenderError, Template


def measured(asked: dict) -> dict[str, object]:
    tools = asked["tools"] or None
    if asked["model"] is None:
        template = Template(Path(asked["template"]).read_text(encoding="utf-8"), {})
        prompts = [template.render(messages, tools, True) for messages in asked["prompts"]]
        conversations = [template.render(messages, tools, False) for messages in asked["conversations"]]
        return {"characters": [len(text) for text in prompts + conversations]}
    renderer = Renderer(asked["model"], asked["template"])
    renderer.tool_responses(["4"])
    pieces = [renderer.prompt(messages, tools) for messages in asked["prompts"]]
    pieces += [renderer.conversation(messages, tools) for messages in asked["conversations"]]
    return {"tokens": [len(piece.tokens) for piece in pieces]}


def main() -> None:
    try:
        said = measured(json.load(sys.stdin))
    except (RenderError, TokensError) as error:
        said = {"fault": str(error)}
    except Exception as error:  # noqa: BLE001 - a damaged tokenizer file raises what its library raises
        said = {"fault": f"{type(error).__name__}: {error}"}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
