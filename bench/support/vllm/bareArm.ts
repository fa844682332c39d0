/**
 * The arm without Troupe: an asyncio client in the venv of vLLM, one process per round, that makes the same requests.
 *
 * in   rollouts as Troupe made them: prompts, tool answers, lengths and delays    out  its turns, and how long all took
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { completionBody } from '../../../backends/engines/vllm/completion'
import type { VllmEngine } from '../../../backends/engines/vllm/vllm'
import { groupId, trajectoryId } from '../../../messages/ids'
import { endedHow } from '../../../runtime/errors'
import type { BareRollout, DoneTurn } from '../bareRollouts'
import type { TracedRun } from '../tracedRun'
import type { BenchServer } from './server'

const client = join(__dirname, 'bareClient.py')

interface SaidTurn {
  readonly tokens: number
  readonly cachedTokens: number
  readonly queuedAt: number
  readonly firstTokenAt: number
  readonly endedAt: number
}

export async function bareRound(
  server: BenchServer,
  { engine, config }: TracedRun<VllmEngine>,
  rollouts: readonly BareRollout[],
): Promise<{ readonly turns: readonly (readonly DoneTurn[])[]; readonly ms: number }> {
  // The request body of Troupe's engine, field by field; the client fills in prompt, length and priority.
  const request = {
    ...{ requestId: 'bare', trajectory: trajectoryId(groupId('bare'), 0), context: new Int32Array(), resumedTokens: 0 },
    ...{ maxTokens: 0, sampling: { ...config.rollout.sampling, stopTokens: [] }, seed: 0, priority: 0, keep: true },
  }
  const body = completionBody(engine.traits, request, 0)
  const plan = rollouts.map(({ trace, prompt, responses }) => ({
    prompt: Array.from(prompt),
    responses: responses.map(tokens => Array.from(tokens)),
    turns: trace.turns,
  }))
  const said = await python(server.python, JSON.stringify({ url: server.url, body, rollouts: plan }))
  const { ms, turns } = JSON.parse(said) as { ms: number; turns: readonly (readonly SaidTurn[])[] }
  return {
    ms,
    turns: turns.map(done =>
      done.map(({ tokens, cachedTokens, queuedAt, firstTokenAt, endedAt }) => ({
        ...{ tokens, cachedTokens, timing: { queuedAt, startedAt: queuedAt, firstTokenAt, endedAt } },
      })),
    ),
  }
}

function python(executable: string, input: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(executable, [client], { stdio: ['pipe', 'pipe', 'inherit'] })
    let out = ''
    child.stdout.setEncoding('utf8').on('data', text => {
      out += text
    })
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code === 0) resolve(out)
      else reject(new Error(`the client without Troupe ${endedHow(code, signal)}`))
    })
    child.stdin.end(input)
  })
}
