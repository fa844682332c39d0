"""Agents of others, unchanged: mini-swe-agent, smolagents, pydantic-ai and litellm, each with the loop that it ships.

In: the gateway's address. Out: a JSON line with how each one ended.
"""

import json
import os
import sys

url = sys.argv[1]
os.environ.update(
    OPENAI_BASE_URL=f"{url}/v1",
    OPENAI_API_BASE=f"{url}/v1",
    ANTHROPIC_BASE_URL=url,
    ANTHROPIC_API_BASE=url,
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    MSWEA_SILENT_STARTUP="1",
    MSWEA_COST_TRACKING="ignore_errors",
)


def key(name):
    os.environ["OPENAI_API_KEY"] = os.environ["ANTHROPIC_API_KEY"] = name


def mini_swe_agent():
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    model = LitellmModel(model_name="openai/any")
    templates = {"system_template": "You fix bugs.", "instance_template": "{{task}}"}
    return DefaultAgent(model, LocalEnvironment(), **templates, step_limit=5, cost_limit=0).run("List the files.")


def smolagents():
    import smolagents as s

    @s.tool
    def add(a: int, b: int) -> int:
        """Adds.

        Args:
            a: a number
            b: a number
        """
        return a + b

    model = s.OpenAIServerModel(model_id="any", api_base=f"{url}/v1", api_key="smolagents")
    agent = s.ToolCallingAgent(tools=[add], model=model, max_steps=4, verbosity_level=0)
    return agent.run("What is 12 + 30?")


def pydantic_ai(model):
    from pydantic_ai import Agent

    agent = Agent(model, system_prompt="You are brief.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    first = agent.run_sync("What is 12 + 30?")
    return [first.output, agent.run_sync("go on", message_history=first.all_messages()).output]


def litellm(model):
    from litellm import completion

    messages = [{"role": "user", "content": "hello"}]
    message = completion(model=model, messages=messages, max_tokens=500).choices[0].message
    messages += [message, {"role": "user", "content": "go on"}]
    chunks = completion(model=model, messages=messages, max_tokens=500, stream=True)
    return [message.content, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)]


out = {}
for name, run in {
    "mini-swe-agent": mini_swe_agent,
    "smolagents": smolagents,
    "pydantic-ai-chat": lambda: pydantic_ai("openai-chat:any"),
    "pydantic-ai-messages": lambda: pydantic_ai("anthropic:any"),
    "litellm-chat": lambda: litellm("openai/any"),
    "litellm-messages": lambda: litellm("anthropic/any"),
}.items():
    key(name)
    out[name] = run()
print(json.dumps(out, default=str))
