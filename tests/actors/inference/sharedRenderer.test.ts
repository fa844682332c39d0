/** The renderer that the engines of a process share: its death costs the turns that run, not all that come. */
import { sharedRenderer } from '../../../actors/inference/sharedRenderer'

function rig() {
  const lives: { die: () => void; closed: boolean }[] = []
  let failures = 0
  const renderer = sharedRenderer(async () => {
    if (failures-- > 0) throw new Error('no memory')
    const life = { die: () => {}, closed: false }
    const lost = new Promise<Error>(resolve => {
      life.die = () => resolve(new Error('killed'))
    })
    const name = lives.push(life)
    const text = `${name}`
    return {
      lost,
      decode: async () => text,
      encode: async () => Int32Array.of(name),
      close: async () => {
        life.closed = true
      },
    }
  })
  return {
    renderer,
    lives,
    fail: (times: number) => {
      failures = times
    },
  }
}

test('engines share one, and after its death the next who needs one gets another', async () => {
  const { renderer, lives } = rig()
  const decode = () => renderer.decode(Int32Array.of())
  expect(lives).toHaveLength(0)
  expect(await Promise.all([decode(), decode()])).toEqual(['1', '1'])
  lives[0]!.die()
  await new Promise(resolve => setImmediate(resolve))
  expect(await decode()).toBe('2')
  expect(await renderer.encode('')).toEqual(Int32Array.of(2))
  await renderer.close()
  expect(lives.map(({ closed }) => closed)).toEqual([false, true])
  await expect(decode()).rejects.toMatchObject({ code: 'process.closed' })
  expect(lives).toHaveLength(2)
})

test('one that could not be started is started again for the next who needs it', async () => {
  const { renderer, fail } = rig()
  fail(1)
  await expect(renderer.ready()).rejects.toThrow('no memory')
  await renderer.ready()
  expect(await renderer.decode(Int32Array.of())).toBe('1')
})
