/**
 * Streams a run's new facts as server-sent events.
 *
 * in   an opened run, the cursor to continue from        out  events; each one's id is the cursor after it
 * Invariant: an event has exactly the readable facts between the id before it and its own, so a client that reconnects
 * with the last id it saw misses none and gets none twice. Data that a client asks for after it got a fact includes
 * that fact. A client that stops reading stops its own polling (backpressure), and loses its stream
 * after a while.
 */
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { factLine } from '../../replay/factLine'
import { type Place, placeText } from '../../replay/log/place'
import { systemEffects } from '../../runtime/effects'
import type { Entry } from '../../runtime/journal/journal'
import { writeAndDrain } from '../../sandbox/http/backpressure'
import type { StreamFact } from '../api'
import { cursorOf, endsOf, placesOf } from './cursor'
import type { OpenedRun } from './openedRun'

const pollMs = 500
/** Time in ms without an event after which a comment is sent, so that proxies and clients see a living connection. */
const heartbeatMs = 15_000
/** Upper bound on the facts of one event. */
const mostFacts = 500

export async function streamFacts(
  run: OpenedRun,
  response: ServerResponse,
  from: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { recorded } = run
  let places = from === undefined || from === '' ? await endsOf(recorded) : [...placesOf(from)]
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  let sentAt = systemEffects.elapsed()
  const send = async (text: string) => {
    sentAt = systemEffects.elapsed()
    await writeAndDrain(response, text)
  }
  await send(`retry: 1000\nid: ${cursorOf(places)}\nevent: open\ndata: {}\n\n`)
  while (!signal.aborted) {
    const { facts, next } = await newFacts(run, places)
    const readAt = systemEffects.elapsed()
    // A page asks for its views again once facts have come: the answers have to show them.
    if (facts.length > 0) await run.refresh(readAt)
    if (facts.length > 0) await send(`id: ${cursorOf(next)}\nevent: facts\ndata: ${JSON.stringify(facts)}\n\n`)
    else if (systemEffects.elapsed() - sentAt > heartbeatMs) await send(': alive\n\n')
    places = [...next]
    // After a full event more facts may be in the log already: they are sent without a pause.
    if (facts.length < mostFacts) await sleep(pollMs, undefined, { signal }).catch(() => {})
  }
}

/** Reads at most `most` facts from the offsets `places` on; `next`: the offsets at which the following read begins. */
export async function newFacts(
  { recorded }: Pick<OpenedRun, 'recorded'>,
  places: readonly Place[],
  most = mostFacts,
): Promise<{ readonly facts: readonly StreamFact[]; readonly next: readonly Place[] }> {
  const facts: StreamFact[] = []
  const next: Place[] = []
  for (const place of places) {
    const { topic, partition, offset } = place
    const end = Math.min(await recorded.endOf(topic, partition), offset + most - facts.length)
    if (end <= offset) {
      next.push(place)
      continue
    }
    const wanted = Array.from({ length: end - offset }, (_, i) => ({ partition, offset: offset + i }))
    await recorded.pick(topic, wanted, entry => facts.push(streamFact(entry)))
    next.push({ topic, partition, offset: end })
  }
  return { facts, next }
}

function streamFact(entry: Entry): StreamFact {
  const { message } = entry
  return {
    place: placeText(entry),
    at: 'at' in message ? message.at : entry.timestamp,
    type: message.type,
    id: 'trajectory' in message ? message.trajectory : 'group' in message ? String(message.group) : '',
    line: factLine(message).slice(message.type.length).replace(/\s+/g, ' ').trim(),
  }
}
