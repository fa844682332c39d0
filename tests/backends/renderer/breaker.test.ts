/** The breaker before a slow process: late calls are made again, fewer at once, and none is lost or made twice at once. */
import { breaker } from '../../../backends/renderer/breaker'

const late = new Error('late')
const isLate = (thrown: unknown) => thrown === late

/** A process that answers when it is told to; it knows which calls it has, in their order. */
function slowProcess() {
  const held: { readonly name: string; readonly answer: () => void; readonly fail: (error: Error) => void }[] = []
  const made: string[] = []
  const make = (name: string) => () =>
    new Promise<string>((resolve, reject) => {
      made.push(name)
      held.push({ name, answer: () => resolve(name), fail: reject })
    })
  const settled = () => new Promise(resolve => setImmediate(resolve))
  return {
    make,
    made,
    names: () => held.map(({ name }) => name),
    async end(how: 'answer' | 'late') {
      for (const one of held.splice(0)) how === 'late' ? one.fail(late) : one.answer()
      await settled()
    },
    settled,
  }
}

test('late calls are the next to be made again, at half the number, down to one probe; answers raise it again', async () => {
  const process = slowProcess()
  const call = breaker({ most: 4, tries: 9, isLate })
  const answers = Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(name => call(process.make(name))))
  await process.settled()
  expect(process.names()).toEqual(['a', 'b', 'c', 'd'])
  await process.end('late')
  expect(process.names()).toHaveLength(2)
  await process.end('late')
  expect(process.names()).toHaveLength(1)
  await process.end('late')
  expect(process.names()).toHaveLength(1)
  const atOnce: number[] = []
  while (process.names().length > 0) {
    atOnce.push(process.names().length)
    await process.end('answer')
  }
  expect(atOnce).toEqual([1, 2, 3])
  expect(await answers).toEqual(['a', 'b', 'c', 'd', 'e', 'f'])
})

test('a call that is late each time rejects at last; other errors reject at once, and neither holds up the rest', async () => {
  const process = slowProcess()
  const call = breaker({ most: 1, tries: 3, isLate })
  const first = call(process.make('a'))
  const refused = call(() => Promise.reject(new Error('refused')))
  const last = call(process.make('b'))
  first.catch(() => {})
  refused.catch(() => {})
  for (let i = 0; i < 3; i++) {
    await process.settled()
    expect(process.names()).toEqual(['a'])
    await process.end('late')
  }
  await expect(first).rejects.toBe(late)
  await expect(refused).rejects.toThrow('refused')
  await process.end('answer')
  expect(await last).toBe('b')
  expect(process.made).toEqual(['a', 'a', 'a', 'b'])
})
