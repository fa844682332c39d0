/** The texts that a model sees of its tools: the paper's four outcomes, and the cut in the middle. */
import fc from 'fast-check'
import {
  type ToolOutcome,
  toolOutcome,
  toolResultText,
  toolStatusOf,
  truncateMiddle,
} from '../../../kernels/toolCalls/toolText'

const run = (known: Partial<ToolOutcome>): ToolOutcome => toolOutcome({ status: 'ok', exitCode: 0, ...known })

test('output, no output, an error with its traceback, and a timeout each have their text', () => {
  expect(toolResultText(run({ stdout: '42\n' }))).toBe('Tool call success\nstdout: 42')
  expect(toolResultText(run({}))).toBe('Tool call success')
  const stderr = 'Traceback (most recent call last):\n  …\nNameError: x\n'
  expect(toolResultText(run({ status: 'error', exitCode: 1, stdout: 'half\n', stderr }))).toBe(
    'Tool call failure\nreason: exit code 1\nstdout: half\nstderr: Traceback (most recent call last):\n  …\nNameError: x',
  )
  expect(toolResultText(run({ status: 'timeout', exitCode: null, timeoutMs: 4000 }))).toBe(
    'Tool call failure\nreason: timeout, not done within 4s',
  )
  expect(toolResultText(run({ status: 'killed', exitCode: null, signal: 'SIGKILL' }))).toContain(
    'reason: killed by SIGKILL',
  )
})

test('warnings on stderr of a call that succeeded are shown, and no time', () => {
  const warned = run({ stdout: '1', stderr: 'careful', wallMs: 1234 })
  expect(toolResultText(warned)).toBe('Tool call success\nstdout: 1\nstderr: careful')
})

test('a signal and an exit code are said whatever else the sandbox says; a call that has neither is given its reason', () => {
  const reason = 'cell 3 left nothing'
  const texts = [
    run({ status: 'killed', exitCode: null, signal: 'SIGSEGV', reason }),
    run({ status: 'killed', exitCode: null, reason }),
    run({ status: 'killed', exitCode: null }),
    run({ status: 'error', exitCode: 2, reason }),
    run({ status: 'error', exitCode: null, reason }),
    run({ status: 'error', exitCode: null }),
    run({ status: 'rejected', exitCode: null, reason }),
    run({ status: 'timeout', exitCode: null, signal: 'SIGKILL', reason }),
  ].map(outcome => toolResultText(outcome).replace('Tool call failure\nreason: ', ''))
  expect(texts).toEqual([
    'killed by SIGSEGV',
    reason,
    'killed by a resource limit',
    'exit code 2',
    reason,
    'exit code unknown',
    reason,
    'timeout',
  ])
})

test('only exit 0 is ok; a timeout stays one; everything else is an error', () => {
  const statuses = (['ok', 'timeout', 'error', 'killed', 'rejected'] as const).map(toolStatusOf)
  expect(statuses).toEqual(['ok', 'timeout', 'error', 'error', 'error'])
})

test('a text over the limit keeps half of it at each end', () => {
  expect(truncateMiddle('abcdefghij', 10)).toBe('abcdefghij')
  expect(truncateMiddle('abcdefghijk', 10)).toBe('abcde...(truncated)...ghijk')
  expect(truncateMiddle('abcdef', 5)).toBe('ab...(truncated)...ef')
  expect(truncateMiddle('abc', 0)).toBe('...(truncated)...')
})

test('a cut never splits a character, and counts characters, not code units', () => {
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom('a', 'é', '😀', '\ud83d', '\ude00', '漢')),
      fc.integer({ min: 0, max: 20 }),
      (parts, max) => {
        const text = parts.join('')
        const chars = [...text]
        const half = Math.floor(max / 2)
        const expected =
          chars.length <= max
            ? text
            : `${chars.slice(0, half).join('')}...(truncated)...${half === 0 ? '' : chars.slice(-half).join('')}`
        expect(truncateMiddle(text, max)).toBe(expected)
      },
    ),
    { numRuns: 1000 },
  )
})
