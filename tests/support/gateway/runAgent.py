"""An agent for tests of a run's agents: what it does follows from its place in the group. Standard library only."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url, body, **headers):
    data = json.dumps(body).encode()
    key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    return json.load(direct.open(urllib.request.Request(url, data=data, headers={**key, **headers}), timeout=60))


def chat(messages, **headers):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    message = post(url, {"model": "any", "messages": messages}, **headers)["choices"][0]["message"]
    return [*messages, {"role": "assistant", "content": message["content"]}]


with open(os.environ["TROUPE_TASK"]) as file:
    task = json.load(file)
member = int(os.environ["TROUPE_SESSION"].rsplit("/", 1)[1])
if "truth" in task or "HIDDEN" in os.environ:
    sys.exit("the agent knows what it should not")
messages = chat([{"role": "user", "content": f"task {task['id']} member {member}"}])
if member == 1:
    raise RuntimeError("lost my way")
if member == 2:
    chat([{"role": "user", "content": "a title, please"}], **{"x-troupe-label": "aux"})
if member == 3:
    while True:  # until the rollout has had its calls
        messages = chat([*messages, {"role": "user", "content": "go on"}])
messages = chat([*messages, {"role": "user", "content": "and now?"}])
if os.environ.get("WRITES"):
    with open("out.txt", "w") as file:
        file.write(messages[-1]["content"])
print("said", messages[-1]["content"])
if os.environ.get("REWARD"):
    post(os.environ["TROUPE_SESSION_URL"] + "/reward", {"value": float(os.environ["REWARD"])})
if os.environ.get("HANGS"):
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
