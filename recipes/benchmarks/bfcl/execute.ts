/**
 * Runs the model's calls and the expected calls, and compares their results: the leaderboard's executable check.
 *
 * in   the model's calls, the expected calls as Python text, the functions' source
 * out  the first difference in words
 * Invariant: all functions run in the sandbox. An expected call that fails or hangs throws, since it proves nothing
 * about the model.
 */
import type { RewardContext } from '../../../config'
import type { FunctionCall } from './astCheck'

/**
 * Python program that runs the model's calls and the expected calls, and compares their results. exact_match: equal.
 * structural_match: same type, and same keys of a dict or length of a list. real_time_match: numbers within 20 % of the
 * expected one, other values equal.
 */
const program = `
import json, sys
out, sys.stdout = sys.stdout, sys.stderr
def say(what): print('\\n' + json.dumps(what), file=out, flush=True)
ask = json.loads(sys.stdin.readline())
space = {}
exec(compile(ask['source'], 'functions.py', 'exec'), space)
def function(name):
    found = space.get(name) or space.get(name.replace('.', '_'))
    if found is None: raise NameError(f'there is no function {name}')
    return found
def shape(value):
    if isinstance(value, dict): return ('dict', sorted(value))
    if isinstance(value, (list, tuple)): return ('list', len(value))
    return type(value).__name__
def same(got, want, kind):
    if kind == 'structural_match': return shape(got) == shape(want)
    number = (int, float)
    if kind == 'real_time_match' and isinstance(want, number) and isinstance(got, number):
        return abs(got - want) <= 0.2 * abs(want)
    return got == want
wanted = []
try:
    for text in ask['wanted']: wanted.append(eval(text, dict(space)))
except BaseException as error:
    say({'broken': f'{type(error).__name__}: {error}'}); sys.exit()
say({'wanted': len(wanted)})
left = list(zip(wanted, ask['kinds'], ask['wanted']))
fault = None
for call in ask['calls']:
    try: got = function(call['name'])(**call['arguments'])
    except BaseException as error:
        fault = f"{call['name']} failed: {type(error).__name__}: {error}"; break
    try: found = next((at for at, one in enumerate(left) if same(got, one[0], one[1])), None)
    except BaseException as error: found = None # values that cannot be compared differ
    if found is None:
        try: fault = f"{call['name']} gives {got!r:.80}"
        except BaseException: fault = f"{call['name']} gives another value"
        break
    del left[found]
say({'fault': fault})
`

export async function executedFault(
  calls: readonly FunctionCall[],
  wanted: readonly string[],
  kinds: readonly string[],
  source: string,
  python: RewardContext['python'],
): Promise<string | undefined> {
  if (calls.length !== wanted.length) return `${calls.length} calls, expected ${wanted.length}`
  const ask = { calls, wanted, kinds: wanted.map((_, at) => kinds[at] ?? 'exact_match'), source }
  const { status, stdout, stderr } = await python(program, `${JSON.stringify(ask)}\n`)
  const said = saidIn(stdout)
  if (status === 'timeout' && said.wanted !== undefined) return 'the calls ran out of time'
  if (status === 'timeout')
    throw new Error(
      'the file of data.functions or an expected call (ground_truth) runs out of time; give the functions for which the row was made',
    )
  if (status !== 'ok' && said.wanted !== undefined) return `the calls ended with '${status}'`
  if (status !== 'ok')
    throw new Error(
      `the file of data.functions or an expected call (ground_truth) ended with '${status}': ${stderr.trim().split('\n').at(-1)}`,
    )
  if (said.broken !== undefined) throw new Error(`an expected call (ground_truth) cannot be executed: ${said.broken}`)
  if (said.fault === undefined) throw new Error('the functions of data.functions ended the process before the verdict')
  return said.fault ?? undefined
}

/** Parses the last line of the program's output as JSON. Prints of the functions go to stderr. */
function saidIn(stdout: string): {
  readonly wanted?: number
  readonly fault?: string | null
  readonly broken?: string
} {
  const last = stdout.trim().split('\n').at(-1)!
  try {
    return JSON.parse(last)
  } catch {
    return {}
  }
}
