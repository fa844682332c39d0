/** Files are compared with their manifest, and the manifest with the log: a bit, a deletion, a file too many bytes long. */
import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkFiles } from '../../../backends/weights/manifest'
import { checkModelFiles } from '../../../backends/weights/modelFiles'
import { servedWeights } from '../../../backends/weights/servedWeights'
import { filesBelow, flipBit, sha256, writeCheckpoint } from '../../support/checkpointFiles'

const directory = mkdtempSync(join(tmpdir(), 'troupe-manifest-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
let made = 0
const checkpoint = (options = {}) => {
  const path = join(directory, `c${made++}`)
  return { path, ...writeCheckpoint(path, options) }
}

test('a flipped bit, a longer file and a missing file of any kind are each one fault with file and digests', async () => {
  const { path, manifest } = checkpoint()
  expect(await checkFiles(path, manifest)).toMatchObject({ faults: [], files: 8 })
  for (const file of filesBelow(path)) {
    const before = readFileSync(file)
    const damages = [() => flipBit(file), () => appendFileSync(file, 'x'), () => rmSync(file)]
    for (const damage of damages) {
      damage()
      const { faults } = await checkFiles(path, manifest)
      expect(faults).toHaveLength(1)
      expect(faults[0]).toMatchObject({ file, message: expect.stringContaining(file) })
      expect(faults[0]!.expected).toBe(file.endsWith('manifest.json') ? manifest : sha256(before))
      expect(faults[0]!.found === null).toBe(damage === damages[2])
      writeFileSync(file, before)
    }
  }
  expect((await checkFiles(path, manifest)).faults).toEqual([])
})

test('a file beside the model that the manifest does not name is a fault if a library would load it', async () => {
  const { path, manifest } = checkpoint()
  const harmless = [
    'README.md',
    '.gitattributes',
    'training/more.distcp',
    'eval_results.json',
    'LICENSE.txt',
    'notes.py',
  ]
  for (const name of harmless) writeFileSync(join(path, name), '{}')
  expect((await checkFiles(path, manifest)).faults).toEqual([])
  for (const name of ['other.safetensors', 'adapter_config.json', 'chat_template.json', 'pytorch_model.bin']) {
    const file = join(path, name)
    writeFileSync(file, '{}')
    const message = `${file} would be loaded, but the manifest beside it does not name it: remove that file`
    expect((await checkFiles(path, manifest)).faults).toEqual([{ file, expected: '', found: null, message }])
    await expect(checkModelFiles(path)).rejects.toMatchObject({ code: 'engine.model_damaged', message })
    rmSync(file)
  }
  await checkModelFiles(path)
})

test('a model of which any file differs is refused before a server is started with it; others are not looked at', async () => {
  const { path } = checkpoint()
  flipBit(join(path, 'training/__0_0.distcp'))
  await checkModelFiles(path)
  flipBit(join(path, 'config.json'))
  flipBit(join(path, 'tokenizer.json'))
  await expect(checkModelFiles(path)).rejects.toMatchObject({
    code: 'engine.model_damaged',
    message: expect.stringMatching(/config\.json has the digest .*; and 1 more files differ$/),
  })
  rmSync(join(path, 'manifest.json')) // any model
  await checkModelFiles(path)
})

test('a manifest of another program is none of ours; engines share one check until a file changes', async () => {
  const { path } = checkpoint({ trainer: false })
  const checks = [checkModelFiles(path), checkModelFiles(path)]
  await Promise.all(checks)
  const restore = flipBit(join(path, 'model.safetensors'))
  await expect(checkModelFiles(path)).rejects.toMatchObject({ code: 'engine.model_damaged' })
  restore()
  await checkModelFiles(path)
  for (const content of ['{"files": ["a"]}', '{"files": {"config.json": "abc"}, "format": "pt"}', '[]', 'null']) {
    writeFileSync(join(path, 'manifest.json'), content)
    await checkModelFiles(path)
    expect(await checkFiles(path, undefined)).toMatchObject({ faults: [], manifest: null })
  }
})

test('a directory without a manifest has a fault only if the log has its digest', async () => {
  const { path, manifest } = checkpoint()
  rmSync(join(path, 'manifest.json'))
  expect((await checkFiles(path, manifest)).faults).toMatchObject([{ found: null, expected: manifest }])
  expect(await checkFiles(path, undefined)).toMatchObject({ faults: [], manifest: null })
  writeFileSync(join(path, 'manifest.json'), '{')
  expect((await checkFiles(path, undefined)).faults).toMatchObject([{ file: join(path, 'manifest.json') }])
})

test('a file that is there and cannot be read is a fault with its path, and the other files are still compared', async () => {
  const damages = [
    (file: string) => mkdirSync(file),
    (file: string) => symlinkSync('nowhere', file),
    (file: string) => void execFileSync('mkfifo', [file]),
    // Reading it gives EIO.
    ...(existsSync('/proc/self/mem') ? [(file: string) => symlinkSync('/proc/self/mem', file)] : []),
  ]
  for (const name of ['config.json', 'manifest.json']) {
    for (const damage of damages) {
      const { path, manifest } = checkpoint()
      const [file, other] = [join(path, name), join(path, 'tokenizer.json')]
      rmSync(file)
      damage(file)
      flipBit(other)
      const { faults } = await checkFiles(path, manifest)
      expect(faults.map(fault => fault.file)).toEqual(name === 'config.json' ? [file, other].sort() : [file])
      expect(faults.every(({ file, message }) => message.includes(file))).toBe(true)
      if (name === 'manifest.json') expect((await checkFiles(path, undefined)).faults).toHaveLength(1)
    }
  }
})

test('a server is not told to load weights of which config, tokenizer, weights or manifest differ', async () => {
  for (const file of ['config.json', 'tokenizer.json', 'chat_template.jinja', 'model.safetensors', 'manifest.json']) {
    const { path, ...digests } = checkpoint({ trainer: false })
    const restore = flipBit(join(path, file))
    await expect(servedWeights(path, digests)).rejects.toMatchObject({
      code: 'engine.digest_differs',
      message: expect.stringContaining(join(path, file)),
    })
    restore()
    expect(await servedWeights(path, digests)).toBe(path)
  }
  const { path, manifest } = checkpoint({ trainer: false })
  await expect(servedWeights(path, { digest: 'f'.repeat(64), manifest })).rejects.toMatchObject({
    code: 'engine.digest_differs',
  })
})

test('a server is not told to load adapters whose config was changed', async () => {
  const { path, digest } = checkpoint({ trainer: false })
  writeFileSync(join(path, 'adapter_config.json'), '{"lora_alpha": 16}')
  const adapterConfig = sha256('{"lora_alpha": 16}')
  expect(await servedWeights(path, { digest, adapterConfig })).toBe(path)
  const other = checkpoint({ trainer: false })
  writeFileSync(join(other.path, 'adapter_config.json'), '{"lora_alpha": 32}')
  await expect(servedWeights(other.path, { digest: other.digest, adapterConfig })).rejects.toMatchObject({
    code: 'engine.digest_differs',
    message: expect.stringContaining('adapter_config.json'),
  })
})
