/** A Python that does not answer in time, as on a busy machine, is a warning: it says nothing about the recipe. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promptFaults } from '../../../cli/check/promptFaults'
import { recipeSchema } from '../../../config'
import { taskId } from '../../../messages/ids'

const venv = mkdtempSync(join(tmpdir(), 'troupe-late-python-'))
const python = join(venv, 'bin/python')
const before = process.env.TROUPE_VENV
afterAll(() => {
  if (before === undefined) delete process.env.TROUPE_VENV
  else process.env.TROUPE_VENV = before
  rmSync(venv, { recursive: true })
})

const config = recipeSchema.parse({ name: 'test', model: { from: 'directory', path: '/model' } })
const task = { id: taskId('t'), messages: [{ role: 'user' as const, content: '1+1' }], truth: '2', reward: '' }
const check = (script: string) => {
  mkdirSync(join(venv, 'bin'), { recursive: true })
  writeFileSync(python, `#!/bin/sh\n${script}\n`)
  chmodSync(python, 0o755)
  process.env.TROUPE_VENV = venv
  return promptFaults(config, { train: [task], evaluation: [] }, [])
}

test('no answer within the deadline is a warning; a Python that ends without one is an error', async () => {
  const { faults } = await check('exec sleep 60')
  expect(faults).toMatchObject([{ kind: 'warning', what: expect.stringContaining('not answer within 10 s') }])
  const ended = await check('echo broken >&2; exit 1')
  expect(ended.faults).toMatchObject([{ code: 'codec.render', what: expect.stringContaining('broken') }])
})
