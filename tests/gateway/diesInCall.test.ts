/** A gateway that is killed at any await of a call, by the await's name: its successor joins, repeats or masks the call. */

import type { AddressInfo } from 'node:net'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { type CallPoint, callPoints } from '../../gateway/session/callPoints'
import { callRows, callTree } from '../../kernels'
import type { Fact } from '../../messages/facts'
import { openTroupe } from '../../runtime/embed'
import type { Journal } from '../../runtime/journal/journal'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'

jest.setTimeout(60_000)

/** A port that stays when the gateway behind it dies: its connections break, and new ones reach the next gateway. */
async function frontDoor() {
  let to: number | undefined
  const sockets = new Set<Socket>()
  const server: Server = createServer(client => {
    if (to === undefined) return void client.destroy()
    const gateway = connect(to, '127.0.0.1')
    for (const [one, other] of [
      [client, gateway],
      [gateway, client],
    ] as const) {
      sockets.add(one)
      one.on('error', () => {})
      one.on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lead(url: string) {
      to = Number(new URL(url).port)
    },
    cut() {
      to = undefined
      for (const socket of sockets) socket.destroy()
    },
    close: () => new Promise(resolve => server.close(resolve)),
  }
}

/** A log of which a killed process appends nothing any more. */
function mortal(journal: Journal) {
  let isDead = false
  const killed = () => Promise.reject(new Error('the process was killed'))
  return {
    kill() {
      isDead = true
    },
    journal: {
      ...journal,
      append: (messages: Parameters<Journal['append']>[0]) => (isDead ? killed() : journal.append(messages)),
      appendTo: (...args: Parameters<Journal['appendTo']>) => (isDead ? killed() : journal.appendTo(...args)),
    },
  }
}

/** One turn, as the SDKs ask: a broken connection is tried again, with the header of a retry. Resolves with the answer. */
async function turn(
  url: string,
  messages: object[],
  isStreamed: boolean,
  retries: boolean,
): Promise<string | undefined> {
  for (let tries = 0; tries < (retries ? 40 : 1); tries++) {
    const headers: Record<string, string> = { authorization: 'Bearer agent', 'content-type': 'application/json' }
    if (tries > 0) headers['x-stainless-retry-count'] = String(tries)
    try {
      const body = JSON.stringify({ model: 'm', messages, stream: isStreamed })
      const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body })
      const text = await response.text()
      if (!response.ok) throw new Error(text)
      if (!isStreamed) return JSON.parse(text).choices[0].message.content
      if (!text.includes('[DONE]')) throw new Error('the stream broke off')
      return [...text.matchAll(/"content":"([^"]*)"/g)].map(match => match[1]).join('')
    } catch {
      await new Promise(resolve => setTimeout(resolve, 5))
    }
  }
  return undefined
}

/** Has a gateway killed at `point` of an agent's second call, and another take over. */
async function killedAt(point: CallPoint, { isStreamed = true, retries = true } = {}) {
  const log = await openTroupe({ bus: 'memory:', run: 'r' })
  const door = await frontDoor()
  const first = mortal(log.journal)
  let armed = false
  let next: Promise<TestGateway> | undefined
  let release = () => {}
  const script = (_context: string, n: number, { seed }: { seed: number }) => `answer ${n} of ${seed}`
  const second = async () => {
    const gateway = await openTestGateway(script, { over: log })
    door.lead(gateway.gateway.url)
    return gateway
  }
  const one = await openTestGateway(script, {
    over: log,
    journal: first.journal,
    atPoint(at) {
      if (!armed || at !== point) return undefined
      armed = false
      first.kill()
      door.cut()
      next = second()
      return new Promise((_, reject) => {
        release = () => reject(new Error('the process was killed'))
      })
    },
  })
  door.lead(one.gateway.url)
  const messages: object[] = [{ role: 'user', content: 'go' }]
  const answers: (string | undefined)[] = []
  for (let n = 0; n < 3; n++) {
    if (n === 1) armed = true
    const answer = await turn(door.url, messages, isStreamed, retries)
    answers.push(answer)
    if (n === 1 && !retries) {
      await next
      continue // the agent goes on without the answer that it did not get
    }
    messages.push({ role: 'assistant', content: answer }, { role: 'user', content: `on ${n}` })
  }
  const two = await next
  if (two === undefined) throw new Error(`the gateway was not killed at ${point}`)
  const facts: Fact[] = await two.facts()
  release()
  await two.close()
  await one.close()
  await door.close()
  await log.close()
  return { facts, answers, engines: [one.engine, two.engine] as const }
}

describe.each(callPoints)('killed at %s', point => {
  test.each([true, false])(
    'the retried call is answered, and each answer is trained once (streamed: %s)',
    async isStreamed => {
      const { facts, answers } = await killedAt(point, { isStreamed })
      const tree = callTree(facts)
      const [row, ...others] = callRows(tree)
      expect(others).toEqual([])
      // The tokens trained are those of the answers that the agent got, in their order, each once.
      const texts = row!.calls.map(call => tree.nodes.get(call)!.finished!.text.replace('<|im_end|>', ''))
      expect(texts).toEqual(answers)
      expect(new Set(row!.calls).size).toBe(3)
      expect(facts.filter(fact => fact.type === 'call.finished')).toHaveLength(3)
    },
  )
})

/** Points before the answer is in the log. An answer that is there counts as heard, unless the gateway saw its client leave. */
const unanswered = callPoints.slice(0, callPoints.indexOf('call.finished'))

test.each(unanswered)('killed at %s and not asked again, the call is not trained on', async point => {
  const { facts, answers } = await killedAt(point, { retries: false })
  const tree = callTree(facts)
  const trained = callRows(tree).flatMap(row => row.calls.map(call => tree.nodes.get(call)!.finished!.text))
  const heard = answers.filter(answer => answer !== undefined)
  expect(heard).toHaveLength(2)
  expect(trained.map(text => text.replace('<|im_end|>', ''))).toEqual(heard)
})
