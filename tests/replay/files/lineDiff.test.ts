import fc from 'fast-check'
import { lineDiff } from '../../../replay/files/lineDiff'

const text = fc
  .array(fc.constantFrom('a', 'b', 'c', ''), { maxLength: 30 })
  .map(lines => lines.map(l => `${l}\n`).join(''))

test('applying the difference to the first text gives the second', () => {
  fc.assert(
    fc.property(text, text, (a, b) => {
      const left = a.split('\n')
      const result: string[] = []
      let at = 0
      for (const line of lineDiff(a, b)!) {
        const begin = /^@@ -(\d+)/.exec(line)
        if (begin) while (at < Number(begin[1]) - 1) result.push(left[at++]!)
        else if (line.startsWith('+')) result.push(line.slice(1))
        else {
          expect(line.slice(1)).toBe(left[at])
          if (line.startsWith(' ')) result.push(left[at]!)
          at++
        }
      }
      while (at < left.length - 1) result.push(left[at++]!)
      expect(result.map(line => `${line}\n`).join('')).toBe(b)
    }),
  )
})

test('equal lines far from a difference are left out, and a missing last line break is shown', () => {
  const a = Array.from({ length: 20 }, (_, n) => `${n}\n`).join('')
  expect(lineDiff(a, a.replace('10\n', 'ten\n'))).toEqual([
    '@@ -8 +8 @@',
    ' 7',
    ' 8',
    ' 9',
    '-10',
    '+ten',
    ' 11',
    ' 12',
    ' 13',
  ])
  expect(lineDiff('x\n', 'x')).toEqual(['@@ -1 +1 @@', '-x', '+x\n\\ No newline at end of file'])
  expect(lineDiff('same', 'same')).toEqual([])
})

test('texts that differ in too many lines are not compared', () => {
  const many = (word: string) => Array.from({ length: 1100 }, (_, n) => `${word}${n}\n`).join('')
  expect(lineDiff(many('a'), many('b'))).toBeUndefined()
})
