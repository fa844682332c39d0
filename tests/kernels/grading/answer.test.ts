/** Answers are taken from where the paper says, and integers compared whatever their dress. */
import fc from 'fast-check'
import { countAnswerTags, extractAnswer } from '../../../kernels/grading/answerExtraction'
import { normalizeInteger, sameInteger } from '../../../kernels/grading/integers'

test('answer tags are counted as pairs', () => {
  expect(countAnswerTags('no tag')).toBe(0)
  expect(countAnswerTags('<answer>a</answer>')).toBe(1)
  expect(countAnswerTags('<answer>a</answer> no, <answer>b</answer>')).toBe(2)
  expect(countAnswerTags('<answer>never closed')).toBe(0)
  expect(countAnswerTags('</answer> <answer>')).toBe(0)
  expect(countAnswerTags('<answer>a<answer>b</answer>')).toBe(1)
})

test('the last balanced box inside the last pair of answer tags is the answer', () => {
  const answer = (text: string) => extractAnswer(text, 'answer-tag')
  expect(answer('\\boxed{1}<answer>\\boxed{2} and \\boxed{3}</answer>\\boxed{4}')).toBe('3')
  expect(answer('<answer>\\boxed{1}</answer> wait <answer>\\boxed{2}</answer>')).toBe('2')
  expect(answer('<answer>\\boxed{1}</answer> <answer>\\boxed{2}')).toBe('1')
  expect(answer('<answer>\\boxed{1}</answer></answer>')).toBe('1')
  expect(answer('<answer>\\boxed{1}</answer> <answer>2</answer>')).toBeNull()
  expect(answer('\\boxed{1}')).toBeNull()
  expect(answer('<answer>7</answer>')).toBeNull()
})

test('a wider place takes the last box of the whole response', () => {
  expect(extractAnswer('\\boxed{1}<answer>\\boxed{2}</answer>\\boxed{ 4 }', 'anywhere')).toBe('4')
})

test('braces inside a box are balanced, escaped ones do not count, a box that is cut off is passed over', () => {
  const answer = (text: string) => extractAnswer(text, 'anywhere')
  expect(answer('\\boxed{\\frac{1}{2}}')).toBe('\\frac{1}{2}')
  expect(answer('\\boxed{\\left\\{ 1 \\right.}')).toBe('\\left\\{ 1 \\right.')
  expect(answer('\\boxed{1} then \\boxed{2')).toBe('1')
  expect(answer('} { \\boxed {5} }')).toBe('5')
  expect(answer('\\boxed{so \\boxed{3}}')).toBe('3')
  expect(answer('\\\\boxed{8}')).toBe('8')
  expect(answer('\\boxed{}')).toBe('')
  expect(answer('boxed{1}')).toBeNull()
})

/** The same, by definition: of all boxes whose own brace is closed, the one that begins last. */
function lastBoxByDefinition(text: string): string | null {
  const tokens = [...text.matchAll(/\\boxed[ \n\t\r]{0,9}\{|\\(?=\\boxed)|\\[\s\S]|[{}]/g)]
  let found: string | null = null
  tokens.forEach((box, at) => {
    if (!box[0].startsWith('\\boxed')) return
    let depth = 1
    for (const token of tokens.slice(at + 1)) {
      if (token[0] === '}') depth--
      else if (token[0].endsWith('{') && token[0] !== '\\{') depth++
      if (depth > 0) continue
      found = text.slice(box.index + box[0].length, token.index).trim()
      return
    }
  })
  return found
}

test('the box that is taken is the last whose brace is closed, whatever stands around and inside', () => {
  const pieces = fc.constantFrom(
    '\\boxed{',
    '\\boxed \n{',
    '{',
    '}',
    '\\{',
    '\\}',
    '\\',
    '\\\\',
    '\\frac{',
    '1',
    'x',
    ' ',
  )
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 24 }), parts => {
      const text = parts.join('')
      expect(extractAnswer(text, 'anywhere')).toBe(lastBoxByDefinition(text))
    }),
    { numRuns: 3000 },
  )
})

test('a box is found through blanks of any kind, and in every line of a response', () => {
  for (const blank of ['', ' ', '\t', '\n', '\r\n']) {
    expect(extractAnswer(`so\n\\boxed${blank}{${blank}5${blank}}.`, 'anywhere')).toBe('5')
  }
  expect(extractAnswer('<answer>\nThus\n$$\\boxed{\\text{a {b} c}}$$\n</answer>\n', 'answer-tag')).toBe(
    '\\text{a {b} c}',
  )
})

test('no response makes the extraction throw or take long', () => {
  const pieces = fc.constantFrom('\\boxed{', '\\boxed', '{', '}', '\\', '<answer>', '</answer>', ' ', '1')
  fc.assert(
    fc.property(fc.array(fc.oneof(pieces, fc.string())), parts => {
      for (const place of ['answer-tag', 'anywhere'] as const) extractAnswer(parts.join(''), place)
    }),
  )
  const begun = performance.now()
  for (const unit of ['\\boxed{', '<answer>', '</answer>', '\\boxed          ', '<answer></answer>']) {
    extractAnswer(`<answer>${unit.repeat(100_000)}`, 'answer-tag')
    extractAnswer(`${unit.repeat(100_000)}</answer>`, 'answer-tag')
    extractAnswer(unit.repeat(100_000), 'anywhere')
    countAnswerTags(unit.repeat(100_000))
  }
  expect(performance.now() - begun).toBeLessThan(5000)
})

test('integers are the same whatever their dress', () => {
  const same = [
    '1234',
    '1,234',
    '+1234',
    '01234',
    '$1234$',
    '$1,234$',
    '1{,}234',
    '1\\,234',
    '1\\!,234',
    '1234.0',
    '1234.',
    ' 1234 ',
    '\\(1234\\)',
    '{1234}',
    '$$1234$$',
  ]
  for (const one of same) expect([one, sameInteger(one, '1234')]).toEqual([one, true])
  expect(sameInteger('-0', '0')).toBe(true)
  expect(sameInteger('007', '7')).toBe(true)
  expect(sameInteger('\u22125', '-5')).toBe(true)
  expect(sameInteger('1,234,567', '1234567')).toBe(true)
  expect(sameInteger('7', '8')).toBe(false)
  expect(sameInteger('-7', '7')).toBe(false)
  expect(sameInteger('9'.repeat(400), `${'9'.repeat(399)}8`)).toBe(false)
})

test('what is not an integer is left to math-verify', () => {
  for (const other of [
    '',
    '-',
    '1/2',
    '\\frac{4}{2}',
    '1,2',
    '12,34',
    '1,23,456',
    '1234,567',
    '0,123',
    '42.5',
    '42%',
    '42 cm',
    'x',
    '1e3',
    '4 2',
    '--4',
    '2^3',
    '0x10',
    '(1,234)',
  ]) {
    expect([other, sameInteger(other, '42')]).toEqual([other, undefined])
    expect(sameInteger('42', other)).toBeUndefined()
  }
})

test('every integer is its own normal form, in groups of three as well', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), n => {
      expect(normalizeInteger(n.toString())).toBe(n.toString())
      expect(normalizeInteger(n.toLocaleString('en-US'))).toBe(n.toString())
    }),
  )
})
