/** A gateway that dies at any point of its log loses no answer and trains none twice: the client's library repeats its request. */
import { callRows, callTree } from '../../kernels'
import type { Fact } from '../../messages/facts'
import { openTroupe } from '../../runtime/embed'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'

jest.setTimeout(60_000)

type Chat = { role: string; content: string }

/** An agent of three turns whose library repeats a request that had no answer. Returns what it was answered. */
async function agent({ post }: TestGateway, isRetry: boolean): Promise<string[]> {
  const messages: Chat[] = [{ role: 'user', content: 'go' }]
  const answers: string[] = []
  for (let turn = 0; turn < 3; turn++) {
    const headers = { authorization: 'Bearer agent', ...(isRetry ? { 'x-stainless-retry-count': '1' } : {}) }
    const response = await post('/v1/chat/completions', { model: 'm', messages }, headers)
    const { choices } = (await response.json()) as { choices: { message: Chat }[] }
    answers.push(choices[0]!.message.content)
    messages.push(choices[0]!.message, { role: 'user', content: `on ${turn}` })
  }
  return answers
}

test('after a death at any fact the repeated requests get the recorded answers, and every call is trained once', async () => {
  const whole = await openTestGateway((_c, turn) => `answer ${turn}`)
  const said = await agent(whole, false)
  const facts = await whole.facts()
  await whole.close()
  expect(facts.map(fact => fact.type).slice(3)).toEqual(Array(3).fill(['call.started', 'call.finished']).flat())
  for (let end = 1; end <= facts.length; end++) {
    const log = await openTroupe({ bus: 'memory:', run: 'r' })
    await log.journal.append(facts.slice(0, end).filter(fact => fact.type !== 'partition.claimed'))
    const finished = facts.slice(0, end).filter(fact => fact.type === 'call.finished').length
    const again = await openTestGateway((_c, turn) => `anew ${turn}`, { over: log })
    const heard = await agent(again, true)
    expect(heard.slice(0, finished)).toEqual(said.slice(0, finished))
    expect(again.engine.asked).toHaveLength(3 - finished)
    const all: Fact[] = await again.facts()
    const [row, ...others] = callRows(callTree(all))
    expect(others).toEqual([])
    expect(row!.calls).toEqual([0, 1, 2])
    expect(new Set(all.filter(fact => fact.type === 'session.opened').map(fact => fact.opening))).toEqual(new Set([0]))
    await again.close()
    await log.close()
  }
})
