/** Thousands of calls at once make no renderer miss a deadline: a call's deadline begins when the call is made. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { makeTinyModel } from '../support/tinyModel'

jest.setTimeout(240_000)

test('16,384 decodes at once are all answered, although together they take longer than the deadline of one', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-renderer-'))
  makeTinyModel(join(directory, 'model'), { chatTemplate: '{{ messages[0].content }}' })
  const renderer = await startRenderer({ modelDirectory: join(directory, 'model'), timeoutMs: 2_000 })
  try {
    const begun = performance.now()
    const asked = Array.from({ length: 16_384 }, (_, n) => renderer.decode(Int32Array.of(20 + (n % 50), 21)))
    const failed = (await Promise.allSettled(asked)).filter(({ status }) => status === 'rejected')
    expect(failed).toHaveLength(0)
    expect(performance.now() - begun).toBeGreaterThan(2_000)
  } finally {
    await renderer.close()
    rmSync(directory, { recursive: true, force: true })
  }
})
