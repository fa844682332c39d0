/**
 * Measures how fast `troupe grade --jsonl` grades 10,000 integers, 10,000 answers of MATH's kinds, and a thousand
 * answers beside ten that hang the grader.
 *
 * Few pairs of answer and truth occur twice (about 2 % of the MATH ones, mostly percentages), so the cache of verdicts
 * hardly helps. Half of the answers of each set are right; those that hang come on top. The command is started as a
 * user starts it, and its start-up counts.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { pcg32 } from '../kernels'
import { atMost, type BenchReport, describeMachine } from './report'

const count = 10_000
const timeoutMs = 4000
const stuck = 10
/**
 * Value of `--lanes`: number of answers that math-verify decides at once. Answers that hang wait for their deadline
 * four at a time.
 */
const lanes = 4

interface Graded {
  readonly seconds: number
  readonly verdicts: readonly { readonly correct: boolean | null; readonly how: string }[]
}

function grade(lines: readonly object[]): Promise<Graded> {
  const began = performance.now()
  const bin = join(__dirname, '../cli/bin.js')
  const args = [bin, 'grade', '--jsonl', '--lanes', String(lanes), '--timeout-ms', String(timeoutMs)]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'ignore'] })
  let out = ''
  child.stdout.setEncoding('utf8').on('data', text => {
    out += text
  })
  child.stdin.end(lines.map(line => `${JSON.stringify(line)}\n`).join(''))
  return new Promise(resolve =>
    child.on('close', () => {
      const verdicts = out
        .trim()
        .split('\n')
        .map(line => JSON.parse(line) as Graded['verdicts'][number])
      resolve({ seconds: (performance.now() - began) / 1000, verdicts })
    }),
  )
}

const integers = () =>
  Array.from({ length: count }, (_, i) => ({
    answer: `so it is <answer>\\boxed{${(7919 * i).toLocaleString('en-US')}}</answer>`,
    truth: String(7919 * i + (i % 2)),
  }))

/**
 * Answers of MATH's kinds: fractions, roots, polynomials, tuples, sets, intervals, matrices, complex numbers,
 * percentages, units.
 */
function math(): { answer: string; truth: string; right: boolean }[] {
  const random = pcg32(1)
  return Array.from({ length: count }, (_, i) => {
    const right = i % 2 === 0
    const [a, b, c] = [2, 3, 5].map(least => least + random.below(997)) as [number, number, number]
    const d = right ? c : c + 1
    const pairs: readonly (readonly [string, string])[] = [
      [`\\frac{${a}}{${c}}`, `\\dfrac{${3 * a}}{${3 * d}}`],
      [`${a}\\sqrt{${c}}`, `\\sqrt{${a * a * d}}`],
      [`${a}x^2 + ${c}x`, `x(${a}x + ${d})`],
      [`(${a}, ${b}, ${c})`, `\\left(${a},${b},${d}\\right)`],
      [`${a}, ${c}`, `\\{${d}, ${a}\\}`],
      [`[${a}, ${a + c})`, `\\left[${a}, ${a + d}\\right)`],
      [`\\begin{pmatrix} ${a} \\\\ ${c} \\end{pmatrix}`, `\\begin{bmatrix} ${a} \\\\ ${d} \\end{bmatrix}`],
      [`${a} + ${c}i`, `${d}i + ${a}`],
      [`${c}\\%`, `\\frac{${d}}{100}`],
      [`\\frac{${c}\\pi}{${a}}`, `${d}\\pi/${a}`],
    ]
    const [truth, answer] = pairs[(i >> 1) % pairs.length]!
    return { answer, truth, right }
  })
}

export async function bench(): Promise<BenchReport> {
  const fast = await grade(integers())
  const asked = math()
  const slow = await grade(asked)
  const agreed = slow.verdicts.filter(({ correct }, i) => correct === asked[i]!.right).length
  const hanging = Array.from({ length: stuck }, (_, i) => ({
    answer: `9^{9^{9^{${i + 9}}}}`,
    truth: `\\frac{1}{${i + 2}}`,
  }))
  const few = asked.slice(0, 1000)
  const alone = await grade(few)
  const beside = await grade([...few.slice(0, 500), ...hanging, ...few.slice(500)])
  const late = beside.verdicts.filter(({ how }) => how === 'math-verify-timeout').length
  return {
    bench: 'grade',
    machine: describeMachine(),
    metrics: {
      'integers, seconds': fast.seconds,
      'MATH answers, seconds': slow.seconds,
      'MATH answers a second': count / slow.seconds,
      'MATH answers judged as made': agreed,
      'a thousand, seconds': alone.seconds,
      'a thousand and ten that hang, seconds': beside.seconds,
      'of the ten ended by their deadline': late,
    },
    budgets: [
      atMost('10,000 integers, seconds', fast.seconds, 2),
      atMost('10,000 MATH answers, seconds', slow.seconds, 60),
      atMost('judged otherwise than made', count - agreed, 0),
      atMost(
        'ten that hang cost, deadlines of a lane',
        (beside.seconds - alone.seconds) / ((stuck / lanes) * (timeoutMs / 1000)),
        1.5,
      ),
    ],
  }
}
