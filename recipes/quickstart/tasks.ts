/**
 * Makes the quickstart's problems: one multiplication and one more operation on integers, asked in words or in signs.
 *
 * in   an index, a seed, a split        out  a question, the Python expression that answers it, the answer
 * A model of under a million parameters cannot multiply two-digit numbers by itself, but can learn to copy them into a
 * call.
 * Invariant: pure. A hash of the three operands, which ignores their order, decides their split, so no triple occurs in
 * both splits.
 */
import { pcg32 } from '../../kernels/random'
import { deriveSeed } from '../../runtime/effects'

export type Split = 'train' | 'eval'

export interface QuickstartTask {
  readonly question: string
  /** Python expression in one line, with the operands in the question's order. */
  readonly expression: string
  /** Value of the expression: a non-negative integer in decimal. */
  readonly answer: string
}

interface Form {
  readonly question: (a: bigint, b: bigint, c: bigint) => string
  readonly expression: (a: bigint, b: bigint, c: bigint) => string
  readonly value: (a: bigint, b: bigint, c: bigint) => bigint
}

/**
 * Forms of a question. Operands are a ≥ c > 0 and b > 0, so that no value is negative. Each operation is asked in two
 * ways. A form's Python expression has the operands in the question's order, because a model with random weights learns
 * such copying first.
 */
const forms: readonly Form[] = [
  {
    question: (a, b, c) => `What is ${a} * ${b} + ${c}?`,
    expression: (a, b, c) => `${a}*${b}+${c}`,
    value: (a, b, c) => a * b + c,
  },
  {
    question: (a, b, c) => `A crate holds ${a} bolts. How many bolts are ${b} full crates and ${c} loose bolts?`,
    expression: (a, b, c) => `${a}*${b}+${c}`,
    value: (a, b, c) => a * b + c,
  },
  {
    question: (a, b, c) => `Compute ${a} times ${b}, minus ${c}.`,
    expression: (a, b, c) => `${a}*${b}-${c}`,
    value: (a, b, c) => a * b - c,
  },
  {
    question: (a, b, c) => `A mill fills ${a} sacks a day. How many are left after ${b} days if ${c} are sold?`,
    expression: (a, b, c) => `${a}*${b}-${c}`,
    value: (a, b, c) => a * b - c,
  },
  {
    question: (a, b, c) => `Add ${a} and ${c}, then multiply by ${b}.`,
    expression: (a, b, c) => `(${a}+${c})*${b}`,
    value: (a, b, c) => (a + c) * b,
  },
  {
    question: (a, b, c) => `One hall seats ${a}, the other ${c}. How many guests fill both on ${b} nights?`,
    expression: (a, b, c) => `(${a}+${c})*${b}`,
    value: (a, b, c) => (a + c) * b,
  },
  {
    question: (a, b, c) => `What is the remainder of ${a} * ${b} divided by ${c}?`,
    expression: (a, b, c) => `${a}*${b}%${c}`,
    value: (a, b, c) => (a * b) % c,
  },
  {
    question: (a, b, c) => `${b} crews pick ${a} pears each and pack ${c} in a box. How many pears do not fill a box?`,
    expression: (a, b, c) => `${b}*${a}%${c}`,
    value: (a, b, c) => (b * a) % c,
  },
]

/** Share of operand triples that belong to the split `eval`: one in this many. */
const evalOneIn = 8

/** Returns the problem with this index (an integer ≥ 0). Two indices may give the same problem; two splits never do. */
export function quickstartTask(index: number, seed: number, split: Split): QuickstartTask {
  const random = pcg32(deriveSeed('quickstart/task', seed, split, index))
  const between = (low: number, high: number) => BigInt(low + random.below(high - low + 1))
  for (;;) {
    const [x, y, b] = [between(10, 99), between(10, 99), between(12, 99)]
    const [a, c] = x >= y ? [x, y] : [y, x]
    if (splitOf([a, b, c]) !== split) continue
    const form = forms[random.below(forms.length)]!
    const [question, expression, value] = [form.question(a, b, c), form.expression(a, b, c), form.value(a, b, c)]
    return { question, expression, answer: value.toString() }
  }
}

/** Returns the split of three operands, independent of their order and of the question. */
export function splitOf(operands: readonly bigint[]): Split {
  const sorted = operands.map(Number).sort((x, y) => x - y)
  return deriveSeed('quickstart/split', sorted.join(' ')) % evalOneIn === 0 ? 'eval' : 'train'
}
