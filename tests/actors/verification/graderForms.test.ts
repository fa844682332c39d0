/**
 * The grader on MATH-500's answers in other words: each is reworded by rules that keep its value, and by rules that do not.
 * The file is the benchmark's own and no part of the project; without it the test says so.
 */
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { answerGrader } from '../../../actors/verification/answerGrader'
import { type GraderSandbox, graderSandbox } from '../../../actors/verification/graderSandbox'
import { checkByArithmetic, numericValue, sameNumber } from '../../../kernels'
import { pythonPath } from '../../../runtime/python'
import { publishedData } from '../../support/publishedData'

jest.setTimeout(600_000)

const file = join(publishedData, 'math/math500.jsonl')
const isThere = existsSync(file)
if (!isThere) process.stderr.write(`MATH-500 is not read: ${file} is not there\n`)
const withFile = isThere ? test : test.skip

let sandbox: GraderSandbox
beforeAll(() => {
  sandbox = graderSandbox(4)
})
afterAll(() => sandbox.close())

const answers = (): readonly string[] => {
  const rows = readFileSync(file, 'utf8').trim().split('\n')
  return [...new Set(rows.map(row => (JSON.parse(row) as { answer: string }).answer))]
}

/** Same value, other words. */
function reworded(answer: string): string[] {
  const forms: string[] = []
  const value = numericValue(answer)
  const fraction = /^(-?)\\d?frac\{(\d+)\}\{(\d+)\}$/.exec(answer)
  if (fraction) {
    const [, sign, over, under] = fraction as unknown as [string, string, string, string]
    forms.push(`${sign}\\dfrac{${over}}{${under}}`, `${sign}${over}/${under}`)
    forms.push(`${sign}\\frac{${3 * Number(over)}}{${3 * Number(under)}}`)
    const decimal = Number(over) / Number(under)
    if (Number.isInteger(decimal * 10_000)) forms.push(`${sign}${decimal}`)
  }
  if (/^-?\d{1,15}$/.test(answer)) {
    forms.push(`${answer}.0`, `+${answer}`.replace('+-', '-'), `\\frac{${BigInt(answer) * 2n}}{2}`, `$${answer}$`)
    forms.push(`${Number(answer).toLocaleString('en-US')}`, `\\left(${answer}\\right)`, `x = ${answer}`, `{${answer}}`)
  }
  if (value !== undefined && !/[%$°a-zA-Z]/.test(answer.replace(/\\[a-z]+/g, '')) && !/circ|\d,\d/.test(answer)) {
    forms.push(
      `${answer} + 0`,
      `1 \\cdot (${answer})`,
      `(${answer})\\cdot 1`,
      `${answer}\\text{ cm}`,
      `${answer}\\,\\mathrm{units}`,
    )
  }
  const root = /^(\d+)\\sqrt\{?(\d+)\}?$/.exec(answer)
  if (root) {
    forms.push(`\\sqrt{${Number(root[1]) ** 2 * Number(root[2])}}`, `\\sqrt{${root[2]}} \\cdot ${root[1]}`)
  }
  const complex = /^(-?\d+)\s*([+-])\s*(\d*)i$/.exec(answer)
  if (complex) {
    const [, real, sign, times] = complex as unknown as [string, string, string, string]
    forms.push(`${sign}${times}i ${real.startsWith('-') ? real : `+ ${real}`}`.replace(/^\+/, ''), `z = ${answer}`)
    forms.push(`(${answer})`, `${real} ${sign} ${times} i`, `${real} ${sign} ${times}\\mathrm{i}`)
    if (times !== '') forms.push(`${real} ${sign} i \\cdot ${times}`, `${real} ${sign} i${times}`)
  }
  const factors = /^(\([^()]+\))(\([^()]+\))$/.exec(answer)
  if (factors) forms.push(`${factors[2]}${factors[1]}`)
  const terms = /^(\d*[a-z](?:\^\{?\d+\}?)?) ?\+ ?(\d+)$/.exec(answer)
  if (terms) forms.push(`${terms[2]} + ${terms[1]}`)
  const words = /^\\text\{([A-Za-z ]+)\}$/.exec(answer)
  if (words) forms.push(words[1]!, words[1]!.toUpperCase(), ` ${answer} `, `${words[1]}.`)
  if (!/\.\d*$/.test(answer)) forms.push(`${answer}.`, `$${answer}.$`, `${answer}\\ .`, `${answer},`)
  if (/^\(.*,.*\)$/.test(answer)) forms.push(`\\left${answer.slice(0, -1)}\\right)`, answer.replaceAll(',', ' , '))
  return forms
}

/** Other values. */
function wrong(answer: string): string[] {
  const forms: string[] = []
  const value = numericValue(answer)
  if (value !== undefined && !/[%$]/.test(answer)) {
    forms.push(`${answer} + 1`, `${value + 2}`)
    if (value !== 0) forms.push(`-(${answer})`)
  }
  const pair = /^\\left\( ?([^,]+), ([^,]+) ?\\right\)$|^\(([^,()]+),([^,()]+)\)$/.exec(answer)
  if (pair) {
    const [a, b] = pair.slice(1).filter(part => part !== undefined) as [string, string]
    if (sameNumber(a, b) === false) forms.push(`(${b},${a})`)
  }
  if (/^\\text\{[A-Za-z ]+\}$/.test(answer)) forms.push('\\text{another}', 'another', '7')
  if (/[a-z]/.test(answer.replace(/\\[a-z]+/g, '')) && value === undefined && !/text|_|,/.test(answer)) forms.push('17')
  return forms
}

/** math-verify as its own documentation uses it. */
async function byMathVerify(pairs: readonly (readonly [string, string])[]): Promise<boolean[]> {
  const program = `
import json, sys
from math_verify import parse, verify
for line in sys.stdin:
    truth, answer = json.loads(line)
    print(json.dumps(bool(verify(parse('$' + truth + '$'), parse('$' + answer + '$')))))
`
  const running = promisify(execFile)(pythonPath(), ['-c', program], { maxBuffer: 2 ** 26 })
  running.child.stdin!.end(pairs.map(pair => `${JSON.stringify(pair)}\n`).join(''))
  return (await running).stdout
    .trim()
    .split('\n')
    .map(line => line === 'true')
}

withFile('reworded answers are right, wherever math-verify finds them so as well, and others are wrong', async () => {
  const grade = answerGrader(sandbox, { timeoutMs: 20_000 })
  const right = answers().flatMap(answer => reworded(answer).map(form => [answer, form] as const))
  const others = answers().flatMap(answer => wrong(answer).map(form => [answer, form] as const))
  expect(right.length).toBeGreaterThan(1500)
  expect(others.length).toBeGreaterThan(700)
  const judge = (pairs: typeof right) => Promise.all(pairs.map(([truth, answer]) => grade({ truth, answer })))
  const [ofRight, ofOthers] = await Promise.all([judge(right), judge(others)])
  const theirs = await byMathVerify(right)
  const refused = right.filter((_, at) => !ofRight[at]!.correct)
  expect(refused.filter(pair => theirs[right.indexOf(pair)])).toEqual([])
  process.stderr.write(
    `${right.length} reworded: ${refused.length} refused here, ${theirs.filter(t => !t).length} by math-verify alone\n`,
  )
  expect(refused).toEqual([])
  expect(others.filter((_, at) => ofOthers[at]!.correct)).toEqual([])
})

withFile('arithmetic alone never contradicts the grader on them', async () => {
  const grade = answerGrader(sandbox, { timeoutMs: 20_000 })
  const pairs = answers().flatMap(truth => [...reworded(truth), ...wrong(truth)].map(answer => ({ truth, answer })))
  const told = pairs.flatMap(pair => {
    const same = sameNumber(pair.truth, pair.answer)
    return same === undefined ? [] : [{ pair, same }]
  })
  expect(told.length).toBeGreaterThan(1000)
  const differ = await Promise.all(
    told.map(async ({ pair, same }) => ((await grade(pair)).correct === same ? [] : [pair])),
  )
  expect(differ.flat()).toEqual([])
})

/** `truth | answer; answer; …` */
const table = (text: string) =>
  text
    .trim()
    .split('\n')
    .flatMap(line => {
      const [truth, answers] = line.split(' | ') as [string, string]
      return answers.split(' ; ').map(answer => [truth.trim(), answer.trim()] as const)
    })

const same = table(String.raw`
21 | twenty-one dollars ; Twenty one. ; twenty-one ; \$21 ; $21 ; 21 dollars ; $21 dollars ; US$21 ; £21 ; 21 € ; \text{twenty-one} ; x = 21\text{ cm}
2.5 | two and a half ; two and one half ; 2 1/2 ; 2½ ; 2\frac12 ; two point five ; 2.5 hours ; two and a half hours ; 2 and a half cups ; 2 1/2 cups ; 2 \frac{1}{2}
20.5 | twenty and one half ; twenty and a half miles
5.2 | five point two ; 5.2 m/s ; 5.2\text{ m/s}^2
5000000 | 5 million ; five million ; $5 million ; 5 million dollars ; 5,000,000 ; 5 000 000 ; 5\text{ million} ; 5\ 000\ 000 ; 5e6 ; 5.0 million people
18 | 18 dollars ; eighteen dollars ; €18 ; 18 apples ; 18 red apples ; 18 different ways ; 18 apples per child ; 18 years old ; 18 more dollars ; 18 people ; 18 paths ; 18 units ; 18 square units
18 dollars | 18 ; \$18 ; eighteen ; eighteen dollars ; $18.00 ; 18\text{ dollars}
18\text{ m/s} | 18 ; 18 meters per second ; 18 m/s ; 18\,\mathrm{m}\,\mathrm{s}^{-1} ; eighteen metres per second
25 | 25 cm^2 ; 25 cm² ; 25\text{ cm}^2 ; 25 m/s ; 25cm ; 25 sq ft ; 25 square meters ; 25 kg·m/s^2 ; 25 km/h ; 25^\circ ; 25° ; 25 degrees ; 25°C ; 25 degrees Celsius ; 25 mL ; twenty-five cubic inches
\frac12 | ½ ; half ; one half ; a half ; 0.5 cups ; half a cup ; 50 percent ; 50\% ; fifty percent ; 1/2 cup ; half an hour
\frac72 | 3½ ; 3 1/2 ; 3\frac{1}{2} ; seven halves ; 7/2 ; three and a half ; 3 and a half
\sqrt{2} | √2 ; √(2) ; \sqrt2
\infty | ∞
-\frac{7}{100} | minus seven hundredths ; −7/100 ; -0.07 ; negative seven hundredths
12345 | 12 345 ; 12 345 ; 12\,345 ; 12\ 345 ; twelve thousand three hundred forty-five ; 12 345 dollars ; twelve thousand three hundred and forty-five
24 | two dozen ; 2 dozen eggs ; 24 eggs
100 cm^2 | 10² cm^2 ; 100 square centimeters ; 10^2
2\pi | 2π ; 2\pi cm ; 2\pi\text{ cm}
x^2 | x²
\text{East} | east ; EAST ; East. ; \text{east}
No | no ; NO
\text{blue and red} | Blue and Red ; blue and red
June 20 | june 20
1 hour | 1 ; one hour ; 1 hr
5 km | 5 KM ; 5km ; 5 kilometres
3,\frac12 | 3 and 1/2
FF_{16} | ff_{16}
-\frac72 | -3 1/2 ; minus three and a half
5 pm | 5 PM
10:30 AM | 10:30 am
goldfish | Goldfish ; GOLDFISH
Bedford | BEDFORD
\text{Yes}, x=2 | \text{yes}, x=2
\{\text{Red}, \text{Blue}\} | \{\text{red}, \text{blue}\}
\frac{3}{4}. | \frac34 ; 0.75 ; \frac{3}{4}\text{.} ; \(\frac{3}{4}\). ; \frac{3}{4}\ . ; \frac34;
2^{10} | 2^{10}. ; 1024. ; 2**10 ; 2 ** 10 ; 4**5.
\infty | \infty.
\text{(C)} | C. ; (C).
1, 2, 3 | 1, 2, 3. ; 3, 2, 1.
\frac{8}{27} | (2/3)**3
2^{n+1} | 2**(n+1) ; 2\cdot 2**n
5 | the answer is 5 ; Answer: 5 ; no. 5 ; =5 ; **5** ; \mathbf{5}. ; {\bf 5} ; 5 \checkmark ; \left. 5 \right. ; 5,
3+4i | 4i+3 ; 4i + 3. ; i4 + 3 ; 3+4\mathrm{i}
16\sqrt3+16i | 16i + 16\sqrt{3} ; 16(\sqrt3 + i)
\frac13 | 0.\overline{3} ; 0.\bar3 ; 0.\dot{3} ; .\overline{33} ; 0.3\overline{3} ; 0.(3) ; 0.3̅ ; x = 0.\overline{3}
-0.1\overline{6} | -\frac16 ; -1/6 ; -0.16\overline{66} cm
0.\dot{1}4\dot{2} | \frac{142}{999} ; 0.\overline{142}
10.0\overline{9} | 10.1
(0.\overline{3}, 1.\overline{6}) | (\frac13, \frac53)
4s | 4s ; 4 seconds ; 4\text{ s} ; s\cdot 4 ; 3s + s
\frac{3}{5}m | 0.6m ; \frac35\text{ m} ; \frac{3m}{5}
2\pi h | 2h\pi ; 2\pi\text{ hours}
2\pi rh | 2\pi hr ; 2hr\pi
5\text{ m} | 5
5 m | 5
3 1/2 h | 3.5
2\pi\text{ cm} | 2\pi
`)

const other = table(String.raw`
7 | 7 hundredths ; 7 tenths ; 7 thirds ; 7 thousand ; 7 dozen ; 7/100 ; 7\text{ hundredths}
5 | 5 thousands ; 5 squared ; 5\text{ squared} ; 5 factorial ; 5 plus x ; 5 x ; 5 repeating ; 5 percent less than x ; 5\text{ million} ; 5 hundreds ; 5 and 6 ; 5 or 6 ; 5 choose 2 ; 5 cos x
3 | 3 ln x ; 3 1/2 ; 3½ ; 3\text{ ln }x ; 3 quarters ; three point one
12 | 12 less than x ; 12 more than x ; 12 dozen ; 12 + x ; 12 times x
102 cm | 10² cm ; 10^2 cm ; 102 m ; 102 kg
52 | 5²
x1 | x₁ ; x¹²
2ab | 2AB ; 2 ; 2ac
abc | ABC ; Abc ; aBC
AB | ab
10.5 | twenty and one half ; ten ; ten and a third
21 | twenty ; twenty and one ; twenty-two dollars ; 21 million ; 21 and a half ; €22 ; two one ; 2 1
5 m | 5 cm ; 5 m^2 ; 5 m/s ; 5\text{ cm} ; 6 m ; 5 seconds ; 5 inches
5\text{ cm} | 5\text{ m} ; 5\text{ cm}^2 ; 5 kg
€18 | $18 ; 18 dollars ; €19
18 apples | 18 pears ; 19 apples ; 18 students
25°C | 25°F ; 25 K
60 mph | 60 km/h ; 61 mph ; 60 miles
5000000 | 5 billion ; 5 thousand ; 5.1 million
2.5 | two and a third ; 2 1/3 ; two and a half million ; 25 ; two point fifty
x + 2 | x + 2s ; x + 3
8 | 5 + 3 m
2 | 2ab ; 2 1 ; 2½
20/3 | twenty third
3.5 | 3 and 1/2
5 pm | 5 am
FF_{16} | FE_{16} ; ff_{15}
5 crores | 5
\text{east} | west ; eas
12345 | 12 346 ; 1 2345 ; 12 34 5
\frac12 | ⅓ ; second ; two halves ; half of x
17 | 17/2. ; 17x+3. ; 17^2. ; 17\sqrt{2}. ; x^2 + 17. ; 17–20 ; 17—20 ; 18, 17. ; \geq 17 ; ≥ 17 ; \neq 17 ; \approx 17 ; 17 < x. ; x > 17. ; y = 3x + 17. ; 17i. ; 9 8 ; 17\pi. ; 17!.
2 | 2/3. ; 2^{10}. ; 2**3 ; 2..3 ; 2... ; 2\dots5 ; 2\times ; 2^ ; 7\Rightarrow 2 ; x\to 2 ; 2\in\{2,3\} ; 2 mod 3. ; 2:30.
2x+1. | 2x+3. ; 2y+1. ; 2 ; 1
2^{10}. | 2^{11}. ; 2 ; 210
6 | 4 2 ; 4\ 2 ; 4\,2 ; 4~2 ; 4 \quad 2 ; 4 \qquad 2. ; 5 1 cm
1006 | 1 005 ; 1000 6 ; 10 05
0.\overline{12} | 0.\overline{21} ; 0.\overline{13} ; 0 ; 0.12 ; 0.\dot{1} ; 0.\dot12
0 | 0.\overline{3} ; 0.\bar{9} ; 0.(3)
4s | 4 ; 4t ; 4 minutes ; 4s^2
y = 4s | 4
3m | 3 ; m
2L | 2
\frac{3}{5}m | \frac35 ; 0.6
2\sqrt{3} h | 2\sqrt3
2\pi h | 2\pi ; 2\pi\text{ m}
2\pi rh | 2\pi r ; 2\pi
3+4i | 3-4i ; 4+3i ; 3+4 ; 3 ; 7
`)

test('an answer in other words, signs or with a unit is right, and one that only looks alike is wrong', async () => {
  const grade = answerGrader(sandbox, { timeoutMs: 20_000 })
  const judge = (pairs: typeof same) => Promise.all(pairs.map(([truth, answer]) => grade({ truth, answer })))
  const [ofSame, ofOther] = await Promise.all([judge(same), judge(other)])
  const shown = (pairs: typeof same, verdicts: typeof ofSame, correct: boolean) =>
    pairs.flatMap((pair, at) => (verdicts[at]!.correct === correct ? [] : [[...pair, verdicts[at]!.why]]))
  expect({ refused: shown(same, ofSame, true), accepted: shown(other, ofOther, false) }).toEqual({
    refused: [],
    accepted: [],
  })
  // Arithmetic may abstain; where it speaks, it says the same.
  const differ = [...same.map(pair => [pair, true] as const), ...other.map(pair => [pair, false] as const)]
  expect(differ.filter(([[truth, answer], right]) => (checkByArithmetic(answer, truth) ?? right) !== right)).toEqual([])
})
