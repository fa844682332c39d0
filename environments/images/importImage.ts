/**
 * Unpacks an image into the store from a tar archive: of `docker save`, of an OCI layout, or of a root file system.
 *
 * in   the archive, a name        out  images/<name>/rootfs and image.json
 * Invariant: an image appears under its name only when it is complete; an older image of this name is replaced.
 * image.json holds the digest of the archive. Blobs of an OCI layout without manifest.json are checked against their
 * digests; other layers are not.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { asError } from '../../runtime/errors'
import { sandboxPythonPath } from '../../runtime/python'
import { environmentError } from '../drivers/errors'
import { imageDirectory, type Store } from '../drivers/store'

const run = promisify(execFile)
const mostOutput = { maxBuffer: 64 * 1024 * 1024 }

interface ImageConfig {
  readonly config?: { readonly Env?: readonly string[]; readonly WorkingDir?: string; readonly User?: string } | null
}

/**
 * Unpacks an archive under the name `name`. @throws TroupeError environment.no_image if the file is missing, damaged,
 * or no archive of an image
 */
export async function importImage(store: Store, file: string, name: string): Promise<void> {
  if (!existsSync(file)) throw environmentError('environment.no_image', `${file} does not exist`)
  const target = imageDirectory(store, name)
  const work = mkdtempSync(join(store.images, '.import-'))
  try {
    const { layers, config } = await read(file, join(work, 'archive'))
    const rootfs = join(work, 'image/rootfs')
    mkdirSync(rootfs, { recursive: true, mode: 0o755 })
    const unpack = join(__dirname, '../keeper/unpack.py')
    await run(sandboxPythonPath() ?? 'python3', ['-I', '-S', '-B', unpack, rootfs, ...layers], mostOutput)
    const { Env = [], WorkingDir, User } = config.config ?? {}
    const env = Object.fromEntries(
      Env.map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    )
    const image = {
      name,
      archive: await sha256(file),
      env,
      workdir: WorkingDir || '/',
      ...(User ? { user: User } : {}),
    }
    writeFileSync(join(work, 'image/image.json'), JSON.stringify(image))
    rmSync(target, { recursive: true, force: true })
    renameSync(join(work, 'image'), target)
  } catch (thrown) {
    const said = (thrown as { stderr?: string }).stderr?.trim().split('\n').pop() || asError(thrown).message
    throw environmentError('environment.no_image', `${file} was not unpacked: ${said}`, {
      cause: thrown,
      hint: 'give an archive of `docker save`, of an OCI layout, or of a root file system; it needs its unpacked size on the disk of --store',
    })
  } finally {
    await run('rm', ['-rf', '--', work])
  }
}

/** Reads an archive: its layers, lowest first, and the image's defaults for commands. */
async function read(file: string, work: string): Promise<{ layers: readonly string[]; config: ImageConfig }> {
  const { stdout } = await run('tar', ['--list', '--file', file], mostOutput)
  const names = new Set(stdout.split('\n').map(name => name.replace(/^\.\//, '')))
  if (!names.has('manifest.json') && !names.has('index.json')) return { layers: [file], config: {} }
  mkdirSync(work)
  await run('tar', ['--extract', '--no-same-owner', '--file', file, '-C', work])
  const json = (path: string) => JSON.parse(readFileSync(join(work, path), 'utf8'))
  if (names.has('manifest.json')) {
    const [image] = json('manifest.json') as readonly { Config: string; Layers: readonly string[] }[]
    if (image === undefined) throw new Error('manifest.json names no image')
    return { layers: image.Layers.map(layer => inside(work, layer)), config: json(image.Config) }
  }
  const blob = async (digest: string) => {
    const [kind = '', hash = ''] = digest.split(':')
    const path = inside(work, join('blobs', kind, hash))
    if (kind !== 'sha256' || (await sha256(path)) !== hash) throw new Error(`blob ${digest} is damaged`)
    return path
  }
  const { manifests } = json('index.json') as { manifests: readonly { digest: string }[] }
  const manifest = JSON.parse(readFileSync(await blob(manifests[0]?.digest ?? ''), 'utf8'))
  const config = JSON.parse(readFileSync(await blob(manifest.config.digest), 'utf8'))
  return { layers: await Promise.all(manifest.layers.map(({ digest }: { digest: string }) => blob(digest))), config }
}

function inside(work: string, path: string): string {
  const whole = join(work, path)
  if (whole.startsWith(`${work}/`)) return whole
  throw new Error(`the archive names a file outside of itself: ${path}`)
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash)
  return hash.digest('hex')
}
