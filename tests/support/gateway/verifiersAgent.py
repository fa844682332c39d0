"""An environment of the package verifiers with several turns and a tool, unchanged: its own client leads the rollouts.

In: the gateway's address. Out: a JSON line with the rewards and the number of the model's messages, by the client's type.
"""

import asyncio
import json
import logging
import os
import sys

import verifiers as vf
from datasets import Dataset, disable_progress_bars
from verifiers.types import ClientConfig

logging.disable(logging.INFO)
disable_progress_bars()
url = sys.argv[1]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def says_the_answer(completion, answer, **_) -> float:
    return float(answer in str(completion[-1]))


problems = Dataset.from_list([{"question": "What is 12 + 30?", "answer": "42"}])
rubric = vf.Rubric(funcs=[says_the_answer])


async def main():
    out = {}
    # verifiers 0.2.1 cannot make its client for Anthropic's messages: the anthropic package that it installs refuses httpx.
    for kind in ("openai_chat_completions", "openai_responses"):
        os.environ["VERIFIERS_KEY"] = kind
        environment = vf.ToolEnv(dataset=problems, tools=[add], max_turns=4, rubric=rubric)
        client = ClientConfig(client_type=kind, api_base_url=f"{url}/v1", api_key_var="VERIFIERS_KEY", max_retries=2)
        done = await environment.evaluate(client, "any")
        out[kind] = [[one["reward"], len(one["completion"])] for one in done["outputs"]]
    print(json.dumps(out))


asyncio.run(main())
