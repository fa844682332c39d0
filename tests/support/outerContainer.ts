/**
 * A container as docker-compose.yml makes them for model-written code, of this machine's own programs: no image is needed.
 *
 * in   a runtime (`runc`, `crun`) or the client of an engine (`docker`), a command     out  its exit code and output
 *
 * Inside: user 10001 without capabilities, sandbox/seccomp.json, namespaces and masked paths as Docker's, no network, a private /tmp;
 * /usr and this checkout read-only, and files that code must not read though the container's user may: a secret, a volume.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { ociSpec } from './ociSpec'

const checkout = resolve(__dirname, '../..')
const USER = 10_001
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
const env = { PATH: path, HOME: '/tmp', TMPDIR: '/tmp', TROUPE_HOME: '/tmp/home', TROUPE_TEST_SECRET: 'must-not-leak' }

export type Runtime = 'runc' | 'crun' | 'docker'
export const runtimes: readonly Runtime[] = ['runc', 'crun', 'docker']

/** Says why containers cannot be made with `runtime` here; undefined: they can. */
export function runtimeMissing(runtime: Runtime): string | undefined {
  if (process.geteuid?.() !== 0) return 'it needs root'
  if (!existsSync('/usr/bin/python3')) return 'no /usr/bin/python3, which every user of the machine can run'
  const version = spawnSync(runtime, ['--version'], { stdio: 'ignore', env: { PATH: `${process.env.PATH}:${path}` } })
  if (version.status !== 0) return `${runtime} is not installed`
  if (runtime === 'crun' && existsSync('/sys/fs/cgroup/unified'))
    return 'crun refuses machines with cgroups of both versions'
  if (runtime !== 'docker') return undefined
  return spawnSync('docker', ['info'], { stdio: 'ignore', timeout: 20_000 }).status === 0
    ? undefined
    : 'no engine answers'
}

export interface OuterContainer {
  run(command: readonly string[]): Promise<{ code: number | null; stdout: string; stderr: string }>
  close(): void
}

export function outerContainer(runtime: Runtime): OuterContainer {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-outer-'))
  const [rootfs, binds] = [join(directory, 'rootfs'), madeFiles(directory)]
  const name = `troupe-attacks-${process.pid}`
  mkdirSync(rootfs)
  chmodSync(directory, 0o755)
  mkdirSync(join(rootfs, 'tmp'))
  chmodSync(join(rootfs, 'tmp'), 0o1777) // runc gives a tmpfs the mode of the directory that it covers
  for (const top of ['bin', 'sbin', 'lib', 'lib64'])
    if (existsSync(`/${top}`) && lstatSync(`/${top}`).isSymbolicLink())
      symlinkSync(readlinkSync(`/${top}`), join(rootfs, top))
  const image = `${name}:latest`
  const words =
    runtime === 'docker'
      ? (command: readonly string[]) => dockerWords({ name, image, binds, command })
      : (command: readonly string[]) => {
          writeFileSync(join(directory, 'config.json'), JSON.stringify(bundle({ name, binds, command })))
          return ['--root', join(directory, 'state'), 'run', '--bundle', directory, name]
        }
  if (runtime === 'docker') {
    const tar = spawnSync('tar', ['-C', rootfs, '-c', '.'], { maxBuffer: 1 << 24 }).stdout
    const made = spawnSync('docker', ['import', '-', image], { input: tar, encoding: 'utf8' })
    if (made.status !== 0) throw new Error(`docker import: ${made.stderr}`)
  }
  return {
    async run(command) {
      const child = spawn(runtime, words(command), {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, PATH: `${process.env.PATH}:${path}` },
      })
      const texts = [child.stdout, child.stderr].map(stream => {
        const parts: string[] = []
        stream.setEncoding('utf8').on('data', part => parts.push(part))
        return () => parts.join('')
      }) as [() => string, () => string]
      const [code] = await once(child, 'close')
      return { code: code as number | null, stdout: texts[0](), stderr: texts[1]() }
    },
    close() {
      if (runtime === 'docker') spawnSync('docker', ['image', 'rm', '-f', image], { stdio: 'ignore' })
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

interface Bind {
  readonly source: string
  readonly target: string
}

/** Lists the read-only mounts of the container, among them files, made here, that code must not see. */
function madeFiles(directory: string): readonly Bind[] {
  const made = (file: string, text: string) => {
    const source = join(directory, file)
    mkdirSync(join(source, '..'), { recursive: true })
    writeFileSync(source, text, { mode: 0o644 })
    return source
  }
  made('runs/checkpoint', 'weights')
  const passwd = made('passwd', `root:x:0:0:root:/root:/bin/sh\ntroupe:x:${USER}:${USER}::/tmp:/bin/sh\n`)
  const tops = ['/usr', '/bin', '/sbin', '/lib', '/lib64'].filter(
    top => existsSync(top) && !lstatSync(top).isSymbolicLink(),
  )
  return [
    ...tops.map(top => ({ source: top, target: top })),
    { source: '/etc/ld.so.cache', target: '/etc/ld.so.cache' },
    { source: '/etc/alternatives', target: '/etc/alternatives' },
    { source: passwd, target: '/etc/passwd' },
    { source: made('token', 'a secret of the container'), target: '/run/secrets/token' },
    { source: join(directory, 'runs'), target: '/runs' },
    { source: checkout, target: '/src' },
    { source: process.execPath, target: '/node' },
  ].filter(({ source }) => existsSync(source))
}

interface Asked {
  readonly name: string
  readonly binds: readonly Bind[]
  readonly command: readonly string[]
}

/** An OCI bundle's config.json. The limits are those of the machine: a compose service has none. */
function bundle({ name, binds, command }: Asked) {
  const spec = ociSpec({ name, limits: { memoryMb: 8192, processes: 4096 } })
  const { archMap, defaultAction, defaultErrnoRet, syscalls } = JSON.parse(
    readFileSync(join(checkout, 'sandbox/seccomp.json'), 'utf8'),
  )
  const architectures = archMap.flatMap(
    ({ architecture, subArchitectures }: { architecture: string; subArchitectures: string[] }) => [
      architecture,
      ...subArchitectures,
    ],
  )
  const seccomp = {
    ...{ defaultAction, defaultErrnoRet, architectures },
    syscalls: syscalls.map(({ names, action }: { names: string[]; action: string }) => ({ names, action })),
  }
  const process = {
    ...spec.process,
    ...{ user: { uid: USER, gid: USER }, args: command, cwd: '/src', noNewPrivileges: false },
    env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
  }
  const mounts = [
    ...spec.mounts,
    { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'noexec', 'mode=1777'] },
    ...binds.map(({ source, target }) => ({ destination: target, type: 'bind', source, options: ['rbind', 'ro'] })),
  ]
  return { ...spec, process, root: { path: 'rootfs', readonly: false }, mounts, linux: { ...spec.linux, seccomp } }
}

function dockerWords({ name, image, binds, command }: Asked & { readonly image: string }): string[] {
  return [
    ...['run', '--rm', '--name', name, '--network', 'none', '--cap-drop', 'ALL', '--tmpfs', '/tmp', '-w', '/src'],
    ...['--security-opt', `seccomp=${join(checkout, 'sandbox/seccomp.json')}`, '--security-opt', 'apparmor=unconfined'],
    ...['--user', `${USER}:${USER}`],
    ...binds.flatMap(({ source, target }) => ['-v', `${source}:${target}:ro`]),
    ...Object.entries(env).flatMap(([key, value]) => ['-e', `${key}=${value}`]),
    image,
    ...command,
  ]
}
