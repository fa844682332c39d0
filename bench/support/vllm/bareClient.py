"""Makes rollouts against a vLLM server without Troupe: an asyncio client, all trajectories at once.

in   stdin: {url, body, rollouts: [{prompt, responses, turns: [{newTokens, toolMs}]}]}
out  stdout: {ms, turns: [[{tokens, cachedTokens, queuedAt, firstTokenAt, endedAt}]]}; times in ms since 1970

The client sends the requests of Troupe's engine (`body` is such a request, but for prompt, length and priority),
reads the same stream with tokens and logprobs, and concatenates the contexts itself. Reading the plan and opening the
session are not timed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp

Json = dict[str, Any]


def now_ms() -> float:
    return time.time() * 1000


async def turn(session: aiohttp.ClientSession, url: str, body: Json) -> tuple[list[int], Json]:
    queued_at = now_ms()
    first_at = 0.0
    tokens: list[int] = []
    logprobs: list[float] = []
    cached = 0
    async with session.post(f"{url}/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or {}
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or cached
            for choice in event.get("choices") or ():
                ids = choice.get("token_ids") or ()
                if ids and not tokens:
                    first_at = now_ms()
                tokens.extend(ids)
                logprobs.extend((choice.get("logprobs") or {}).get("token_logprobs") or ())
    if len(tokens) != body["max_tokens"] or len(logprobs) != len(tokens):
        raise RuntimeError(f"the server sent {len(tokens)} tokens and {len(logprobs)} logprobs; expected {body['max_tokens']} of each")
    done = {
        "tokens": len(tokens),
        "cachedTokens": cached,
        "queuedAt": queued_at,
        "firstTokenAt": first_at,
        "endedAt": now_ms(),
    }
    return tokens, done


async def rollout(session: aiohttp.ClientSession, url: str, body: Json, plan: Json, index: int) -> list[Json]:
    context: list[int] = list(plan["prompt"])
    done: list[Json] = []
    last = len(plan["turns"]) - 1
    for k, wanted in enumerate(plan["turns"]):
        asked = {**body, "prompt": context, "max_tokens": wanted["newTokens"]}
        if "priority" in body:
            asked["priority"] = index
        tokens, said = await turn(session, url, asked)
        done.append(said)
        if k == last:
            break
        await asyncio.sleep(wanted["toolMs"] / 1000)
        context = [*context, *tokens, *plan["responses"][k]]
    return done


async def main() -> None:
    plan: Json = json.load(sys.stdin)
    url, body, rollouts = plan["url"], plan["body"], plan["rollouts"]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        async with session.get(f"{url}/health") as reply:
            reply.raise_for_status()
        began = time.perf_counter()
        turns = await asyncio.gather(*(rollout(session, url, body, one, k) for k, one in enumerate(rollouts)))
        ms = (time.perf_counter() - began) * 1000
    json.dump({"ms": ms, "turns": turns}, sys.stdout)


asyncio.run(main())
