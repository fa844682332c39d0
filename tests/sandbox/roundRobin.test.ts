/** RoundRobin: whose call is next, whatever the others sent. */
import fc from 'fast-check'
import { escapedText } from '../../sandbox/escapedText'
import { headText, tailText } from '../../sandbox/judge/outputText'
import { RoundRobin, type Source } from '../../sandbox/judge/roundRobin'
import { batchOf, submissionCount } from '../../sandbox/judge/submission'

const list = (...items: string[]): Source<string> & { readonly items: string[] } => ({
  items,
  take: () => items.shift(),
})
const drain = (turns: RoundRobin<string>) => [
  ...(function* () {
    for (let t = turns.take(); t; t = turns.take()) yield t
  })(),
]

test('everything is given once, and each source’s things in their order', () =>
  fc.assert(
    fc.property(fc.array(fc.array(fc.nat(), { maxLength: 8 }), { maxLength: 8 }), contents => {
      const turns = new RoundRobin<string>()
      const sources = contents.map((numbers, s) => list(...numbers.map((_, i) => `${s}.${i}`)))
      for (const source of sources) turns.add(source)
      const given = drain(turns)
      expect([...given].sort()).toEqual(contents.flatMap((numbers, s) => numbers.map((_, i) => `${s}.${i}`)).sort())
      for (const [s, numbers] of contents.entries()) {
        expect(given.filter(item => item.startsWith(`${s}.`))).toEqual(numbers.map((_, i) => `${s}.${i}`))
      }
    }),
  ))

test('in a round every source that has something is taken from once', () => {
  const turns = new RoundRobin<string>()
  const sources = [9, 1, 5, 9].map((n, s) => list(...Array.from({ length: n }, () => String(s))))
  for (const source of sources) turns.add(source)
  const given = drain(turns)
  // Once all have had their first, they go round: 0 and 3 take turns to their end.
  expect(given.slice(0, 4).sort()).toEqual(['0', '1', '2', '3'])
  for (let i = 4; i < 13; i += 3) expect(new Set(given.slice(i, i + 3)).size).toBe(3)
})

test('who comes new is next but one at the latest, and a stream of new ones does not stop the old', () => {
  const turns = new RoundRobin<string>()
  for (const s of ['a', 'b', 'c', 'd']) turns.add(list(...Array.from({ length: 50 }, () => s)))
  for (let i = 0; i < 10; i++) turns.take()
  turns.add(list('new'))
  expect([turns.take(), turns.take()]).toContain('new')
  // One new at every turn: those that wait become more and more, and still each old one has its turn in every round.
  const given = Array.from({ length: 40 }, () => {
    turns.add(list('new'))
    return turns.take()
  })
  for (const s of ['a', 'b', 'c', 'd']) expect(given.filter(item => item === s).length).toBeGreaterThanOrEqual(2)
})

test('a source that was empty and has something again has its turn again', () => {
  const turns = new RoundRobin<string>()
  const source = list()
  turns.add(source)
  expect(turns.take()).toBeUndefined()
  source.items.push('x')
  turns.add(source)
  turns.add(source)
  expect([turns.take(), turns.take()]).toEqual(['x', undefined])
})

test('cut text is whole characters, at most as many as asked for, from the right end', () =>
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.nat(20), (text, chars) => {
      const bytes = Buffer.from(text)
      const all = [...bytes.toString()]
      expect(headText(bytes, chars)).toBe(all.slice(0, chars).join(''))
      expect(tailText(bytes, chars)).toBe(chars === 0 ? '' : all.slice(-chars).join(''))
    }),
  ))

test('cut bytes that are no text never give more characters than asked for', () =>
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), fc.nat(8), (bytes, chars) => {
      expect([...headText(bytes, chars)].length).toBeLessThanOrEqual(chars)
      expect([...tailText(bytes, chars)].length).toBeLessThanOrEqual(chars)
    }),
  ))

test('bytes that are no UTF-8 are escaped one by one, all else is as it was', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), text =>
      expect(escapedText(Buffer.from(text))).toBe(Buffer.from(text).toString()),
    ),
  )
  expect(escapedText(Buffer.from([0x61, 0xff, 0xc3, 0xa9, 0xe2, 0x82]))).toBe('a\udcffé\udce2\udc82')
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), text =>
      expect(escapedText(Buffer.concat([Buffer.from(text), Buffer.of(0xff)]))).toBe(
        `${Buffer.from(text).toString()}\udcff`,
      ),
    ),
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), bytes => {
      const back = [...escapedText(Buffer.from(bytes))].map(c =>
        /^[\udc80-\udcff]$/.test(c) ? Buffer.of(c.charCodeAt(0) & 0xff) : Buffer.from(c),
      )
      expect(Buffer.concat(back)).toEqual(Buffer.from(bytes))
    }),
  )
})

test('64 MiB of bytes that are no UTF-8 are escaped like a few', () => {
  const escaped = escapedText(Buffer.alloc(64 * 1024 * 1024, 0xff))
  expect([escaped.length, escaped.at(0), escaped.at(-1)]).toEqual([64 * 1024 * 1024, '\udcff', '\udcff'])
})

test('a batch is looked at piece by piece, and what is said of its bad items is bounded', async () => {
  let turns = 0
  const counting = setInterval(() => turns++, 0)
  const submissions = Array.from({ length: 6000 }, () => ({ sub_id: 1, type: 1, input: 1, note: 'x'.repeat(300) }))
  expect(submissionCount({ submissions })).toBe(6000)
  const batch = await batchOf({ submissions })
  clearInterval(counting)
  expect(turns).toBeGreaterThan(3)
  const faults = 'items' in batch ? batch.items.map(item => ('faults' in item ? item.faults : [])) : []
  expect(faults).toHaveLength(6000)
  expect(faults.every(each => each.length >= 1)).toBe(true)
  expect(faults.flat().length).toBeLessThan(4096 + 6000)
  expect(faults.at(-1)).toEqual([
    { type: 'string_type', loc: ['body', 'submissions', 5999, 'sub_id'], msg: expect.any(String), input: '…' },
  ])
})
