"""An agent as a function: one call, and a reward of its own, which rollout 1 does not give."""

import json
import os
import urllib.request

loaded = os.getpid()


def run(task):
    member = int(os.environ["TROUPE_SESSION"].rsplit("/", 1)[1])
    assert os.getpid() != loaded and os.listdir(".") == []
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": f"{task['id']} {member}"}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", data=body)
    request.add_header("authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=600).read()  # as the package openai
    return None if member == 1 else member / 10
