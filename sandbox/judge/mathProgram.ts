/**
 * Submissions of type `math`: one call of the sandbox, in which math-verify compares the solution with the expected
 * output.
 *
 * in   an answer and the truth, as text      out  a request whose program prints True or False, as math-verify says
 * Both texts are parsed by math-verify's own rules; a text in which these rules find nothing is parsed again as one
 * formula, so that `\frac{1}{2}` without dollar signs is read. A text without a value equals nothing, and stderr says
 * which text it was.
 */
import { SandboxError } from '../errors'
import type { RunRequest, Sandbox } from '../sandbox'

/** Module that the interpreter must have; a preload of this name makes a call cheap (see options.ts). */
export const MATH_MODULE = 'math_verify'
export const MATH_EQUAL = 'True\n'

/** Minimum memory limit of a call, MiB: some formulas make sympy allocate hundreds of MiB. */
const MEMORY_MB = 1024

const PROGRAM = `
import json, os, sys
from math_verify import parse, verify
def read(name, text):
    found = parse(text, parsing_timeout=None) or parse('$' + text + '$', parsing_timeout=None)
    if not found: print('math-verify finds no value in ' + name, file=sys.stderr)
    return found
truth, answer = json.loads(sys.stdin.read())
truth, answer = read('expected_output', truth), read('solution', answer)
print(bool(truth) and bool(answer) and bool(verify(truth, answer, timeout_seconds=None)), flush=True)
sys.stderr.flush()
os._exit(0)
`

export function mathRequest(
  id: string,
  answer: string,
  truth: string,
  { memoryMb, ...limits }: { readonly timeoutMs: number; readonly memoryMb: number; readonly maxOutputBytes?: number },
): RunRequest {
  const stdin = JSON.stringify([truth, answer])
  return { id, code: PROGRAM, stdin, memoryMb: Math.max(memoryMb, MEMORY_MB), ...limits }
}

/** Deadline of the first comparison in ms; it includes the time in which a zygote imports math-verify. */
const FIRST_MS = 60_000

/** Compares 1/2 with 0.5. @throws SandboxError judge.no_math if math-verify does not work in this sandbox */
export async function checkMath(sandbox: Pick<Sandbox, 'run'>): Promise<void> {
  const result = await sandbox.run(mathRequest('math', '0.5', '\\frac{1}{2}', { timeoutMs: FIRST_MS, memoryMb: 1 }))
  if (Buffer.from(result.stdout).toString() === MATH_EQUAL) return
  const said = Buffer.from(result.stderr).toString().trim().split('\n').at(-1)
  throw new SandboxError('judge.no_math', {
    retriable: false,
    message: `math-verify did not compare 0.5 with 1/2: ${said || result.reason || result.status}`,
    hint: "name a Python that has it (the set-up's does: leave out --python), or leave out --math",
  })
}
