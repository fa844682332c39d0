/** A real process that is killed by SIGKILL at every await of a call, one after the other, under one agent that goes on. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { callPoints } from '../../gateway/session/callPoints'
import { callRows, callTree } from '../../kernels'
import type { Fact } from '../../messages/facts'
import { openTroupe } from '../../runtime/embed'

jest.setTimeout(240_000)

const program = join(__dirname, '../support/gateway/killedGateway.ts')

async function startGateway(directory: string, port: string) {
  const args = ['-r', join(__dirname, '../../cli/register.js'), program, directory, port]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = new Promise<NodeJS.Signals | null>(resolve => child.once('exit', (_code, signal) => resolve(signal)))
  const { value: url } = await lines.next()
  if (url === undefined) throw new Error('the gateway did not start')
  return {
    url: url as string,
    ended,
    async dieAt(point: string) {
      child.stdin.write(`${point}\n`)
      await lines.next()
    },
    kill: () => child.kill('SIGKILL'),
  }
}

/** One turn of an agent whose library tries again, as the SDKs do, until the next process answers. */
async function turn(url: string, messages: object[], stream: boolean): Promise<string> {
  for (let tries = 0; tries < 400; tries++) {
    const headers: Record<string, string> = { authorization: 'Bearer agent' }
    if (tries > 0) headers['x-stainless-retry-count'] = String(tries)
    try {
      const body = JSON.stringify({ model: 'm', messages, stream })
      const text = await (await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body })).text()
      if (!stream) return JSON.parse(text).choices[0].message.content
      if (text.includes('[DONE]')) return [...text.matchAll(/"content":"([^"]*)"/g)].map(one => one[1]).join('')
    } catch {}
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error('no gateway answered')
}

test('after each kill the session goes on, and every answer is trained once, token for token', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-killed-'))
  let gateway = await startGateway(directory, '0')
  const { url } = gateway
  const messages: object[] = [{ role: 'user', content: 'go' }]
  const answers: string[] = []
  try {
    for (const [n, point] of callPoints.entries()) {
      await gateway.dieAt(point)
      const answered = turn(url, messages, n % 2 === 0)
      expect([point, await gateway.ended]).toEqual([point, 'SIGKILL'])
      gateway = await startGateway(directory, new URL(url).port)
      const answer = await answered
      answers.push(answer)
      messages.push({ role: 'assistant', content: answer }, { role: 'user', content: `on ${n}` })
    }
  } finally {
    gateway.kill()
    await gateway.ended
  }
  const { journal, close } = await openTroupe({ bus: `lmdb:${directory}`, run: 'r' })
  const facts: Fact[] = []
  const { next } = await journal.offsets('trajectories', 0)
  for await (const entries of journal.readTo('trajectories', 0, 0, next))
    facts.push(...entries.map(one => one.message as Fact))
  await close()
  const tree = callTree(facts)
  const [row, ...others] = callRows(tree)
  expect(others).toEqual([])
  expect(row!.calls).toEqual(callPoints.map((_, n) => n))
  const finished = row!.calls.map(call => tree.nodes.get(call)!.finished!)
  expect(finished.map(one => one.text)).toEqual(answers.map(text => `${text}<|im_end|>`))
  expect(row!.sampledTokens).toBe(finished.reduce((sum, one) => sum + one.tokens.length, 0))
  rmSync(directory, { recursive: true })
})
