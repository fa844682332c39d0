/** GSM8K: rows of a file, exact arithmetic, and demonstrations whose code gives the answer when it is really run. */
import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { parseToolCalls } from '../kernels'
import { equal, evaluate } from '../recipes/gsm8k/arithmetic'
import { gsm8kDemonstration, gsm8kDemonstrations } from '../recipes/gsm8k/demonstrations'
import { parseGsm8k } from '../recipes/gsm8k/tasks'

const line = (question: string, answer: unknown) => JSON.stringify({ question, answer })
const row = (solution: string, truth: string) => ({ line: 1, question: 'How many?', solution, truth })

// Rows of our own making, with what real ones have: money, thousands, decimals, a note that gives a later operand.
const solutions: readonly (readonly [string, string])[] = [
  ['A jar costs $<<3*4=12>>12, two cost <<12*2=24>>24.', '24'],
  ['Half of it is <<7/2=3.5>>3.5, four halves <<3.5*4=14>>14.', '14'],
  ['A tenth is <<0.10*250=25>>25; what is left is <<250-25=225>>225.', '225'],
  ['They lose <<5-9=-4>>-4 and then <<-4-(2+1)=-7>>-7.', '-7'],
  ['He pays <<08*1.50=12>>12, so <<2000-12=1988>>$1,988 are left.', '1988'],
  ['A third of them is <<1/3*99=33>>33.', '33'],
]

/** Expressions with their value; undefined where something is divided by zero. */
const expressions = fc.letrec<{ node: { text: string; value: number | undefined } }>(tie => ({
  node: fc.oneof(
    { maxDepth: 4 },
    fc.integer({ min: 0, max: 99 }).map(value => ({ text: `${value}`, value })),
    fc.tuple(tie('node'), fc.constantFrom('+', '-', ' * ', '/'), tie('node')).map(([a, sign, b]) => {
      const text = `(${a.text}${sign}${b.text})`
      if (a.value === undefined || b.value === undefined) return { text, value: undefined }
      if (sign === '/') return { text, value: Math.abs(b.value) < 1e-9 ? undefined : a.value / b.value }
      return { text, value: sign === '+' ? a.value + b.value : sign === '-' ? a.value - b.value : a.value * b.value }
    }),
  ),
})).node

test('every line is a row or is counted under one reason, and keeps its number', () => {
  const { rows, dropped } = parseGsm8k(
    [
      line('How many?', 'It is <<1+1=2>>2.\n#### 2'),
      '',
      'not json',
      '7',
      line('', '#### 1'),
      line('How many?', 3),
      line('How many?', 'no mark'),
      line('How much?', '#### 2.5'),
      line('How many sheep?', 'Many.\n#### 1,234'),
    ].join('\n'),
  )
  expect(rows).toEqual([
    { line: 1, question: 'How many?', solution: 'It is <<1+1=2>>2.', truth: '2' },
    { line: 9, question: 'How many sheep?', solution: 'Many.', truth: '1234' },
  ])
  expect(dropped).toEqual({
    'not JSON': 1,
    'not an object': 1,
    'no question': 1,
    'no answer': 1,
    'no final answer': 1,
    'answer not an integer': 1,
  })
})

test('no line makes the reader throw', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.string().map(s => line('q', s)),
        ),
      ),
      lines => {
        const { rows, dropped } = parseGsm8k(lines.join('\n'))
        const counted = Object.values(dropped).reduce((sum, n) => sum + n, rows.length)
        expect(counted).toBe(
          lines
            .join('\n')
            .split('\n')
            .filter(text => text.trim() !== '').length,
        )
      },
    ),
  )
})

test('arithmetic agrees with that of numbers, and refuses everything else', () => {
  fc.assert(
    fc.property(expressions, ({ text, value }) => {
      const got = evaluate(text)
      if (got === undefined) return value === undefined || text.length > 200
      return Math.abs(Number(got.numerator) / Number(got.denominator) - value!) <= 1e-6 * Math.max(1, Math.abs(value!))
    }),
  )
  for (const wrong of ['', '1+', '(1', '1)', '2**3', '1 2', 'x', '1/0', '1/(2-2)', '0x10', `${'('.repeat(60)}1`]) {
    expect(evaluate(wrong)).toBeUndefined()
  }
  expect(equal(evaluate('0.1*3')!, evaluate('.30')!)).toBe(true)
  expect(evaluate('2-3-4')).toEqual({ numerator: -5n, denominator: 1n })
})

test('the code of a demonstration, run by Python, prints the answer', () => {
  for (const [solution, truth] of solutions) {
    const messages = gsm8kDemonstration(row(solution, truth))
    if (typeof messages === 'string') throw new Error(`${solution}: ${messages}`)
    const [call] = parseToolCalls(messages[1]!.content).calls
    if (call?.kind !== 'call') throw new Error('no call')
    const printed = execFileSync('python3', ['-I', '-c', String(call.arguments.code)], { timeout: 10_000 })
    expect(printed.toString()).toBe(`${truth}\n`)
    expect(messages.map(m => m.content).slice(2)).toEqual([
      `Tool call success\nstdout: ${truth}`,
      `<answer>\\boxed{${truth}}</answer>`,
    ])
  }
})

test('what an earlier note gave is used by its name', () => {
  const messages = gsm8kDemonstration(row(...solutions[0]!))
  expect(messages[1]).toMatchObject({ content: expect.stringContaining('x1 = 3 * 4\\nx2 = x1 * 2\\nprint(round(x2))') })
})

test('a row whose notes do not lead to its answer gives no demonstration and is counted', () => {
  const { demonstrations, dropped } = gsm8kDemonstrations(
    [
      row('No notes.', '3'),
      row('<<2+2=5>>5', '5'),
      row('<<10/3=3.33>>3.33 and <<1+1=2>>2', '2'),
      row('<<2+x=5>>', '5'),
      row('<<2+2=4>>', '5'),
      row(`<<${'1+'.repeat(300)}1=301>>`, '301'),
      row('<<2+3=5>>', '5'),
      row('<<2+4=6>>', '6'),
    ],
    1,
  )
  expect(demonstrations).toHaveLength(1)
  expect(dropped).toEqual({
    'no calculator notes': 1,
    'a note is wrong or rounded': 2,
    'notes are not arithmetic': 2,
    'the last note is not the answer': 1,
  })
})
