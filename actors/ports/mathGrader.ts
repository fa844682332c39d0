/**
 * The grader for answers in `\boxed{}`: reward 1 iff the answer is equivalent to the truth, else 0 (DESIGN §6).
 *
 * in   a response and the truth        out  the reward, what was taken as the answer, which rule decided
 * Two integers are compared here; everything else goes to math-verify, which can hang on some expressions and therefore
 * runs in a sandbox with a deadline. An answer that it cannot settle in time counts as wrong, and says so.
 */
import { type AnswerPlace, extractAnswer, sameInteger } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { Sandbox } from '../../sandbox'
import type { Grader } from './verifierPort'

/** Standard input is the only untrusted thing here, and it is data: a line of JSON. */
const program = `
import json, sys
from math_verify import parse, verify
ask = json.loads(sys.stdin.readline())
gold, answer = (parse('$' + text + '$', parsing_timeout=None) for text in (ask['truth'], ask['answer']))
print(json.dumps(bool(gold) and bool(answer) and bool(verify(gold, answer, timeout_seconds=None))))
`

export function mathGrader(sandbox: Sandbox, options: { place: AnswerPlace; timeoutMs: number }): Grader {
  return async ({ response, truth }, signal) => {
    const answer = extractAnswer(response, options.place)
    if (answer === null) return { reward: 0, answer: '', how: 'no-answer' }
    const same = sameInteger(answer, truth)
    if (same !== undefined) return { reward: same ? 1 : 0, answer, how: 'integer' }
    if (answer.trim() === truth.trim()) return { reward: 1, answer, how: 'text' }
    const stdin = `${JSON.stringify({ answer, truth })}\n`
    const { timeoutMs } = options
    const result = await sandbox.run({ id: 'grade', code: program, stdin, timeoutMs, memoryMb: 2048 }, signal)
    // What the answer itself brought about is a verdict; a program that never ran is none.
    if (result.status !== 'ok' && result.status !== 'rejected') {
      return { reward: 0, answer, how: `math-verify-${result.status}` }
    }
    const said = Buffer.from(result.stdout).toString('utf8').trim()
    if (result.status !== 'ok' || (said !== 'true' && said !== 'false')) {
      const stderr = Buffer.from(result.stderr).toString('utf8').trim().split('\n').at(-1) ?? ''
      throw new TroupeError('verifier.failed', {
        boundary: 'verifier',
        retriable: true,
        message: `math-verify ended with ${result.status}: ${stderr}`,
      })
    }
    return { reward: said === 'true' ? 1 : 0, answer, how: 'math-verify' }
  }
}
