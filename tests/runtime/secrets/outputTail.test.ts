/** The kept output of a child process has no secrets, however the output is cut into chunks. */
import { PassThrough } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { knowSecret } from '../../../runtime/secrets/knownSecrets'
import { outputTail } from '../../../runtime/secrets/outputTail'

const secret = knowSecret('tail-sëcret-of-a-child')

test('a secret that comes in two chunks, or one within a character, is in no line and not in the tail', async () => {
  const bytes = Buffer.from(`before ${secret} after\nlast ${secret}`)
  for (let cut = 1; cut < bytes.length; cut++) {
    const stream = new PassThrough()
    const lines: string[] = []
    const tail = outputTail([stream], { chars: 100, onLines: text => lines.push(text) })
    stream.write(bytes.subarray(0, cut))
    await nextTurn()
    stream.end(bytes.subarray(cut))
    await nextTurn()
    expect(tail()).toBe('before [redacted] after\nlast [redacted]')
    expect(lines.join('')).toBe(tail())
  }
})

test('chunks of another stream between them change nothing', async () => {
  const [out, error] = [new PassThrough(), new PassThrough()]
  const tail = outputTail([out, error], { chars: 100 })
  out.write('key tail-së')
  error.write('a warning\n')
  out.write('cret-of-a-child\n')
  await nextTurn()
  expect(tail()).toBe('a warning\nkey [redacted]')
})

test('where the beginning is cut off, no end of a secret is left', async () => {
  for (let chars = 1; chars < 40; chars++) {
    const stream = new PassThrough()
    const tail = outputTail([stream], { chars })
    stream.end(`${secret} is it\n`)
    await nextTurn()
    expect('[redacted] is it').toContain(tail())
  }
})

test('a line without an end is taken up in pieces, in bounded memory, without a secret in it', async () => {
  const stream = new PassThrough()
  const lines: string[] = []
  const tail = outputTail([stream], { chars: 50, onLines: text => lines.push(text) })
  for (let k = 0; k < 300; k++) {
    for (const part of ['x'.repeat(997), secret.slice(0, 9), secret.slice(9)]) {
      stream.write(part)
      await nextTurn()
    }
  }
  stream.end()
  await nextTurn()
  expect(lines.length).toBeGreaterThan(2)
  expect(lines.join('')).toBe(`${'x'.repeat(997)}[redacted]`.repeat(300))
  expect(tail()).toHaveLength(50)
})
