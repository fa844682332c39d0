/** `troupe chat` as a user runs it: a random model that was shown how to call, the real engine and sandbox, a run on the bus. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/run/model'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { troupe } from '../support/cli'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-chat-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('a prompt is answered as it comes, and replay shows it; wrong use says what to give', async () => {
  const { recipe, config } = loadRecipe('quickstart', ['coldStart.demonstrations=200'])
  const model = await modelOf(config.value, join(directory, 'model'), () => recipe.demonstrations!(config.value))
  const bus = `lmdb:${join(directory, 'bus')}`
  const how = ['--bus', bus, '--model', model.directory, '--template', 'own', '--set', 'tools.inPrompt=false']
  const asked = ['--prompt', 'Compute 2 plus 2.', '--max-tokens', '48', '--json', '--run', 'c']
  const { code, stdout, stderr } = await troupe(['chat', ...how, ...asked]).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { type: string; text?: string })
  const summary = lines.at(-1) as unknown as { firstTokenLagsMs: number[]; sampledTokens: number; trajectory: string }
  expect(summary).toMatchObject({ type: 'summary', run: 'c', trajectory: 'chat.0000/0' })
  expect(summary.sampledTokens).toBeLessThanOrEqual(48)
  // What was shown piece by piece is what the turns are.
  const texts = lines
    .filter(({ type }) => type === 'text')
    .map(({ text }) => text)
    .join('')
  expect(texts).toBe(
    lines
      .filter(({ type }) => type === 'turn')
      .map(({ text }) => text)
      .join(''),
  )
  process.stderr.write(
    `chat: first token ${summary.firstTokenLagsMs.map(ms => ms.toFixed(0)).join(', ')} ms after the engine's\n`,
  )

  const shown = await troupe(['replay', 'show', 'chat.0000/0', '--bus', bus, '--run', 'c']).done
  expect(shown.stdout).toContain('Compute 2 plus 2.')
  const verified = await troupe(['replay', 'verify', '--bus', bus, '--run', 'c']).done
  expect({ code: verified.code, stdout: verified.stdout, stderr: verified.stderr }).toMatchObject({ code: 0 })

  const nowhere = await troupe(['chat', '--prompt', 'x', '--bus', bus]).done
  expect(nowhere).toMatchObject({ code: 2, stderr: expect.stringContaining('give --model DIR') })
  const long = await troupe(['chat', ...how, '--prompt', 'Compute 2 plus 2. '.repeat(200)]).done
  expect(long).toMatchObject({
    ...{ code: 2, stdout: '' },
    stderr: expect.stringMatching(
      /the conversation has \d+ tokens, but the model.s context holds 320 \(limits.contextTokens\)/,
    ),
  })
  const again = await troupe(['chat', ...how, ...asked]).done
  expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining("'c'") })
  const absent = await troupe(['chat', ...how.slice(0, 4), '--engine', 'vllm:http://127.0.0.1:9', '--prompt', 'x']).done
  expect(absent).toMatchObject({ code: 1, stderr: expect.stringContaining('no answer from http://127.0.0.1:9') })
})
