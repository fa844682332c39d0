"""An agent written against the official openai and anthropic packages, unchanged: tools, streams, responses, errors.

In: the gateway's address. Out: a JSON line with what each client got.
"""

import json
import sys

import anthropic
import openai

url = sys.argv[1]
BASH = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
out = {}


def chat_tools(client):
    """Two turns with a tool in between, the second as a stream; the history goes back as the SDK's own objects."""
    tools = [{"type": "function", "function": {"name": "bash", "description": "runs", "parameters": BASH}}]
    messages = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": "go"}]
    first = client.chat.completions.create(model="any", messages=messages, tools=tools)
    choice = first.choices[0]
    call = choice.message.tool_calls[0]
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "a.txt"}]
    stream = client.chat.completions.create(
        model="any", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return {
        "finish": choice.finish_reason,
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "text": text,
        "last": [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
        "usage": chunks[-1].usage.total_tokens > 0,
    }


def responses(client):
    first = client.responses.create(model="any", input="go", instructions="You fix bugs.")
    events = list(client.responses.create(model="any", input="on", previous_response_id=first.id, stream=True))
    return {
        "first": first.output_text,
        "second": events[-1].response.output_text,
        "events": [event.type for event in events if "delta" not in event.type],
        "numbers": [event.sequence_number for event in events] == list(range(len(events))),
    }


def messages(client):
    tools = [{"name": "bash", "description": "runs", "input_schema": BASH}]
    history = [{"role": "user", "content": "go"}]
    first = client.messages.create(model="any", max_tokens=500, system="You fix bugs.", messages=history, tools=tools)
    use = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "no such file", "is_error": True}
    history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    with client.messages.stream(
        model="any", max_tokens=500, system="You fix bugs.", messages=history, tools=tools
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    count = client.messages.count_tokens(model="any", messages=history, tools=tools).input_tokens
    return {
        "stop": first.stop_reason,
        "input": use.input,
        "text": final.content[0].text,
        "final": final.stop_reason,
        "order": [kinds[0], kinds[-1]],
        "counted": count > 0,
    }


def refusals():
    strict = openai.OpenAI(base_url=f"{url}/v1", api_key="refused", max_retries=2)
    said = {}
    try:
        strict.chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}], n=2)
    except openai.BadRequestError as error:
        said["n"] = error.code
    try:
        anthropic.Anthropic(base_url=url, api_key="refused").messages.create(
            model="any", max_tokens=5, messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]
        )
    except anthropic.BadRequestError as error:
        said["image"] = error.body["error"]["type"]
    return said


openai_client = openai.OpenAI(base_url=f"{url}/v1", api_key="openai-agent")
out["chat"] = chat_tools(openai_client)
out["responses"] = responses(openai.OpenAI(base_url=f"{url}/v1", api_key="responses-agent"))
out["completion"] = openai_client.completions.create(model="any", prompt="Once", max_tokens=8).choices[0].text
out["messages"] = messages(anthropic.Anthropic(base_url=url, api_key="anthropic-agent"))
out["models"] = [model.id for model in openai_client.models.list()]
out["refusals"] = refusals()
print(json.dumps(out))
