"""An agent of the package openai-agents, unchanged: its loop calls a tool until the model answers, once over each of
the package's two APIs (chat completions and responses).

In: the gateway's address. Out: a JSON line with the final answer of each run, and the tool calls that were made.
"""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
ran = []


@function_tool
def bash(cmd: str) -> str:
    """Runs a command."""
    ran.append(cmd)
    return "a.txt"


def agent(model) -> Agent:
    return Agent(name="fixer", instructions="You fix bugs.", tools=[bash], model=model)


async def main(url: str) -> None:
    client = lambda key: AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    chat = await Runner.run(agent(OpenAIChatCompletionsModel(model="any", openai_client=client("chat"))), "go")
    streamed = Runner.run_streamed(agent(OpenAIResponsesModel(model="any", openai_client=client("responses"))), "go")
    async for _ in streamed.stream_events():
        pass
    print(json.dumps({"chat": chat.final_output, "responses": streamed.final_output, "ran": ran}))


asyncio.run(main(sys.argv[1]))
