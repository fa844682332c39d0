"""`python -m troupe_policy.render.measure`: renders prompts once and says how long they are, without a server.

In: one JSON object on stdin: {model, template, tools, prompts: [[{role, content}, …], …]}; model: a model directory, or
null for a model whose tokenizer does not exist yet, which needs a template file. Out: one line of JSON with the length
of each prompt: {"tokens": [n, …]}, without a model {"characters": [n, …]}, or {"fault": why}. Invariant: the text is
the one that a run's renderer makes. With a model, the template must also render a tool response.
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
        return {"characters": [len(template.render(messages, tools, True)) for messages in asked["prompts"]]}
    renderer = Renderer(asked["model"], asked["template"])
    renderer.tool_responses(["4"])
    return {"tokens": [len(renderer.prompt(messages, tools).tokens) for messages in asked["prompts"]]}


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
