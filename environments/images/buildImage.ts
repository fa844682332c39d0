/**
 * Builds an image from a Dockerfile with the driver's own operations (start, exec, upload, snapshot), without a daemon
 * and without a network.
 *
 * in   a Dockerfile, its context, a base image in the store        out  the name of an image in the store
 * Invariant: the name is a digest of the base, the Dockerfile and the context, so that equal inputs are built once. The
 * image is its base and one layer over it. For the driver `local` the base is the machine's own programs, whatever FROM
 * names.
 */
import { createHash } from 'node:crypto'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, join, posix, resolve, sep } from 'node:path'
import type { Environment } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import type { KeptDriver } from '../drivers/keptDriver'
import { findImage, imageDirectory, localBase, localDefaults } from '../drivers/store'
import { type Instruction, readDockerfile } from './dockerfile'

export interface BuildOptions {
  readonly file: string
  readonly context: string
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

const limits = { memoryMb: 4096, processes: 1024 } as const

/**
 * Builds the image unless the store has it; resolves with its name. @throws TroupeError environment.no_image if an
 * instruction is not known here or fails, or if the base image is missing
 */
export async function buildImage(driver: KeptDriver, options: BuildOptions): Promise<string> {
  const { file, context, signal } = options
  const text = readFileSync(file, 'utf8')
  const [from, ...instructions] = readDockerfile(text, file)
  if (from?.kind !== 'from')
    throw environmentError('environment.no_image', `${file} has no FROM instruction, which has to come first`)
  const { store } = driver
  const isLocal = driver.name === 'local'
  const base = isLocal ? { id: localBase, defaults: localDefaults } : findImage(store, from.image)
  const name = `build-${digestOf(base.id, text, context)}`
  if (existsSync(join(imageDirectory(store, name), 'image.json'))) return name
  const below = isLocal ? {} : { image: from.image }
  const environment = await driver.start({ ...below, network: 'no-network', limits }, signal)
  try {
    const state: State = { env: { ...base.defaults.env }, workdir: base.defaults.workdir, user: base.defaults.user }
    for (const instruction of instructions) await apply(environment, instruction, state, options)
    const { digest } = await environment.snapshot()
    const image = {
      name,
      base: isLocal ? localBase : from.image,
      layer: digest,
      env: state.env,
      workdir: state.workdir,
      ...(state.user ? { user: state.user } : {}),
    }
    const target = imageDirectory(store, name)
    mkdirSync(target, { recursive: true })
    writeFileSync(join(target, 'image.new'), JSON.stringify(image))
    renameSync(join(target, 'image.new'), join(target, 'image.json'))
    return name
  } finally {
    await environment.stop()
  }
}

interface State {
  env: Record<string, string>
  workdir: string
  user: string | undefined
}

async function apply(
  environment: Environment,
  instruction: Instruction,
  state: State,
  options: BuildOptions,
): Promise<void> {
  switch (instruction.kind) {
    case 'env':
      state.env = { ...state.env, ...instruction.values }
      return
    case 'user':
      state.user = instruction.user
      return
    case 'workdir':
      state.workdir = posix.resolve(state.workdir, instruction.path)
      return exec(environment, ['mkdir', '-p', state.workdir], { ...state, user: 'root', workdir: '/' }, options)
    case 'run':
      return exec(environment, instruction.command, state, options)
    case 'copy':
      return copy(environment, instruction, state, options)
    case 'from':
      throw environmentError('environment.no_image', `${options.file}: a second FROM, expected one`)
  }
}

async function exec(
  environment: Environment,
  command: string | readonly string[],
  state: State,
  options: BuildOptions,
): Promise<void> {
  const { workdir: cwd, env, user } = state
  const request = {
    command,
    cwd,
    env,
    timeoutMs: options.timeoutMs,
    maxOutputBytes: 1024 * 1024,
    ...(user ? { user } : {}),
  }
  const { status, exitCode, reason, stdout, stderr } = await environment.exec(request, options.signal)
  if (status === 'ok') return
  const said = reason ?? `${stdout}${stderr}`.trim().slice(-800)
  throw environmentError(
    'environment.no_image',
    `${options.file}: ${typeof command === 'string' ? `RUN ${command}` : command.join(' ')}: ${status}${exitCode === null ? '' : ` (exit code ${exitCode})`}: ${said}`,
    {
      hint: 'images are built here without a network: if the command needs one, build the image elsewhere and import it (troupe tasks image)',
    },
  )
}

async function copy(
  environment: Environment,
  { sources, target, chown, chmod }: Instruction & { readonly kind: 'copy' },
  state: State,
  options: BuildOptions,
): Promise<void> {
  const place = posix.resolve(state.workdir, target)
  const root = resolve(options.context)
  for (const source of sources) {
    const path = resolve(root, `./${source}`)
    if (path !== root && !path.startsWith(root + sep))
      throw missing(options.file, source, 'lies outside of environment/')
    const info = statSync(path, { throwIfNoEntry: false })
    if (info === undefined) throw missing(options.file, source, 'does not exist')
    const isInto = target.endsWith('/') || target === '.' || sources.length > 1
    const to = info.isFile() && isInto ? posix.join(place, basename(path)) : place
    await environment.upload(path, to)
    const asRoot = { ...state, user: 'root', workdir: '/' }
    if (chown !== undefined) await exec(environment, ['chown', '-R', chown, to], asRoot, options)
    if (chmod !== undefined) await exec(environment, ['chmod', '-R', chmod, to], asRoot, options)
  }
}

const missing = (file: string, source: string, why: string) =>
  environmentError('environment.no_image', `${file}: COPY ${source}: ${why}`)

function digestOf(base: string, text: string, context: string): string {
  const hash = createHash('sha256').update(JSON.stringify([1, base, text]))
  const visit = (path: string, name: string) => {
    const info = lstatSync(path)
    const content = info.isSymbolicLink()
      ? readlinkSync(path)
      : info.isFile()
        ? createHash('sha256').update(readFileSync(path)).digest('hex')
        : ''
    hash.update(JSON.stringify([name, info.mode, content]))
    if (info.isDirectory()) for (const inner of readdirSync(path).sort()) visit(join(path, inner), `${name}/${inner}`)
  }
  visit(context, '')
  return hash.digest('hex').slice(0, 32)
}
