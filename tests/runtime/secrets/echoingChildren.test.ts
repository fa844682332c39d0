/**
 * Child processes that repeat a secret of the environment that they inherit: neither their last words in an error, nor
 * their answers, nor what they print shows it. The interpreters are scripts that only repeat it.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { startPolicyProcess } from '../../../backends/policyProcess'
import { runPython } from '../../../backends/pythonProcess'
import { startRewardLane } from '../../../backends/reward/rewardLane'
import { redactOutput } from '../../../cli/io/redactOutput'
import { wandbTracker } from '../../../replay/tracking/wandb/wandb'
import { knowSecret } from '../../../runtime/secrets/knownSecrets'
import { refused } from '../../support/refusal'
import { until } from '../../support/until'

const directory = mkdtempSync(join(tmpdir(), 'troupe-echoing-'))
const variables = ['TROUPE_TEST_API_KEY', 'TROUPE_WANDB_VENV', 'NETRC'] as const
const before = Object.fromEntries(variables.map(name => [name, process.env[name]]))
afterAll(() => {
  for (const name of variables) {
    if (before[name] === undefined) delete process.env[name]
    else process.env[name] = before[name]
  }
  rmSync(directory, { recursive: true, force: true })
})

function interpreter(name: string, script: string): string {
  const file = join(directory, name, 'bin/python')
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `#!/bin/sh\n${script}\n`)
  chmodSync(file, 0o755)
  return file
}

/** Prints the variable in two pieces, with a pause between them, after `filler`. */
const says = (filler = '') => `
printf '%s' '${filler}bad key ' >&2
printf '%.9s' "$TROUPE_TEST_API_KEY" >&2
sleep 0.2
printf '%s\\n' "$(printf '%s' "$TROUPE_TEST_API_KEY" | cut -c 10-)" >&2
exit 3`

const secretOf = (test: string): string => {
  process.env.TROUPE_TEST_API_KEY = `SEKRET-of-${test}-qwertz`
  return process.env.TROUPE_TEST_API_KEY
}
const isHidden = (text: string): void => {
  expect(text).toContain('bad key [redacted]')
  expect(text).not.toMatch(/SEKRET|qwertz/)
}

test('a process of troupe_policy that cannot start is reported without it, and so are its lines in the log', async () => {
  secretOf('policy')
  const lines: string[] = []
  const log = { debug: (fields: object) => lines.push(JSON.stringify(fields)) }
  const python = interpreter('policy', says())
  isHidden((await refused(startPolicyProcess({ serve: 'render', modelDirectory: '/m', python, log }))).message)
  isHidden(lines.join(''))
})

test('a program of troupe_policy whose output is longer than what is kept is reported without a piece of it', async () => {
  secretOf('program')
  const python = interpreter('program', `${says('x'.repeat(3990))}`)
  isHidden((await refused(runPython({ module: 'm', args: () => [], python, mayFork: false }, 20_000))).message)
})

test('a reward function that repeats it is reported, and printed, without it', async () => {
  secretOf('reward')
  const printed: string[] = []
  const options = { file: 'r.py', function: 'f', python: interpreter('reward', says('x'.repeat(480))) }
  const lane = startRewardLane({ ...options, onPrinted: line => printed.push(line) })
  expect(`${await lane.ready}${printed.join('')}`).not.toMatch(/SEKRET|qwertz/)
})

test('wandb that repeats its key, and a password of the netrc file, prints and reports neither', async () => {
  secretOf('wandb')
  writeFileSync(join(directory, 'netrc'), 'machine api.wandb.ai login user password SEKRET-of-netrc\n')
  process.env.NETRC = join(directory, 'netrc')
  interpreter(
    'wandb',
    `echo "wandb: bad key $TROUPE_TEST_API_KEY" >&2
read -r line
echo "{\\"error\\": \\"bad key $TROUPE_TEST_API_KEY SEKRET-of-netrc\\", \\"refused\\": true}"`,
  )
  process.env.TROUPE_WANDB_VENV = join(directory, 'wandb')
  const printed: string[] = []
  const write = jest.spyOn(process.stderr, 'write').mockImplementation(text => printed.push(String(text)) > 0)
  try {
    const tracker = wandbTracker('r', { project: 'p', deadlineMs: 20_000 })
    const error = await refused(tracker.begin({ recipe: {}, versions: {} } as never))
    expect(error.code).toBe('tracker.refused')
    isHidden(error.message)
    await until(() => printed.join('').endsWith('\n')) // its stderr may arrive after its answer
    isHidden(printed.join(''))
  } finally {
    write.mockRestore()
  }
})

test('what the command line prints, whoever prints it, has no secret; stdout, which carries data, no long one', () => {
  const [short, long] = [knowSecret('p0stgr3s'), knowSecret('SEKRET-of-the-output-qwertz')]
  const printed: Record<'stdout' | 'stderr', unknown[]> = { stdout: [], stderr: [] }
  const spies = (['stdout', 'stderr'] as const).map(name =>
    jest.spyOn(process[name], 'write').mockImplementation(text => printed[name].push(text) > 0),
  )
  try {
    redactOutput()
    for (const stream of [process.stdout, process.stderr]) {
      stream.write(`${short} ${long}\n`)
      stream.write(Buffer.from(long))
    }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
  expect(printed.stdout).toEqual([`${short} [redacted]\n`, Buffer.from(long)])
  expect(printed.stderr).toEqual(['[redacted] [redacted]\n', Buffer.from(long)])
})
