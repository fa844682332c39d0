/** A rehearsal whose bus cannot be opened ends with that error, and leaves no sandbox open. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rehearse } from '../../../cli/rehearse/rehearsal'
import type { EngineModel } from '../../../kernels'
import { quickstart } from '../../../recipes/quickstart'

const close = jest.fn(async () => {})
jest.mock('../../../sandbox', () => ({
  ...jest.requireActual('../../../sandbox'),
  openSandbox: async () => ({ close: () => close() }),
}))
jest.mock('../../../runtime/bus/open', () => ({
  openBus: async () => {
    throw new Error('the log is damaged')
  },
}))

test('the sandbox is closed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-rehearsal-'))
  const rehearsed = { config: quickstart.config, recipe: quickstart, changes: [] }
  const model = {} as EngineModel // no engine is started
  const options = { rehearsed, model, speed: 1, trainerTokens: 1, directory, onProgress: () => {} }
  await expect(rehearse(options)).rejects.toThrow(/log is damaged/)
  expect(close).toHaveBeenCalledTimes(1)
  rmSync(directory, { recursive: true })
})
