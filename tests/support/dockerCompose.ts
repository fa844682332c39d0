/**
 * A Docker engine and Compose 2 for tests: those of the machine, or an engine that is started for the test.
 *
 * in   DOCKER_HOST, or the default socket; TROUPE_TEST_DOCKERD=DIR: start `dockerd` (root) with its data in DIR, where
 * none answers
 * out  `docker` command lines, what they print; the reason why there is none
 * Invariant: an engine that was started here is ended by its pid. Nothing is removed but the project's own containers
 * and volumes.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { composeRoot } from './composeFile'

/**
 * TROUPE_TEST_BUILD: `no` takes the image as it is; `first` also makes an image's first build, which fetches torch and can
 * take longer than the rest of all tests.
 */
const build = process.env.TROUPE_TEST_BUILD
export const buildsImage = build !== 'no'

let started: ChildProcess | undefined
const env: NodeJS.ProcessEnv = { ...process.env }

const answers = () => spawnSync('docker', ['info'], { env, stdio: 'ignore', timeout: 20_000 }).status === 0

/**
 * Returns the reason why this machine has no engine, no Compose 2 or no earlier build of the image; undefined if it has
 * all. Starts an engine if TROUPE_TEST_DOCKERD is set.
 */
export function dockerMissing(image: string): string | undefined {
  if (spawnSync('docker', ['--version'], { stdio: 'ignore' }).status !== 0) return 'no docker command on the path'
  if (!answers()) {
    const directory = process.env.TROUPE_TEST_DOCKERD
    if (!directory) return 'no Docker engine answers: start one, or set DOCKER_HOST or TROUPE_TEST_DOCKERD=DIR'
    mkdirSync(directory, { recursive: true })
    const socket = join(directory, 'docker.sock')
    const words = [
      '--data-root',
      join(directory, 'root'),
      '--exec-root',
      join(directory, 'exec'),
      '-H',
      `unix://${socket}`,
    ]
    started = spawn('dockerd', [...words, '--pidfile', join(directory, 'pid')], { stdio: 'ignore' })
    env.DOCKER_HOST = `unix://${socket}`
    for (let tries = 0; tries < 30 && !answers(); tries++) spawnSync('sleep', ['1'])
    if (!answers()) return `dockerd in ${directory} does not answer`
  }
  // Compose 1 is no plugin of docker, so any plugin that answers is Compose 2 or later; its own builds say `dev`.
  if (spawnSync('docker', ['compose', 'version'], { env, stdio: 'ignore' }).status !== 0)
    return "no Compose 2: 'docker compose version' does not answer"
  const isBuilt = spawnSync('docker', ['image', 'inspect', image], { env, stdio: 'ignore' }).status === 0
  return isBuilt || build === 'first'
    ? undefined
    : `no image ${image} yet, and its first build fetches torch: npm run test:compose`
}

export async function endEngine(): Promise<void> {
  if (started === undefined || started.exitCode !== null) return
  const ended = once(started, 'exit')
  started.kill('SIGTERM')
  await ended
}

export interface Said {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs `docker WORDS…`. */
export async function docker(words: readonly string[], more: NodeJS.ProcessEnv = {}): Promise<Said> {
  const child = spawn('docker', words, {
    cwd: composeRoot,
    env: { ...env, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr] = [child.stdout, child.stderr].map(stream => {
    let text = ''
    stream.setEncoding('utf8').on('data', part => {
      text += part
    })
    return () => text
  }) as [() => string, () => string]
  const [code] = await once(child, 'close')
  return { code: code as number | null, stdout: stdout(), stderr: stderr() }
}

/** As `docker`, for a command that must succeed. Returns what it prints. */
export async function dockerOutput(words: readonly string[], more: NodeJS.ProcessEnv = {}): Promise<string> {
  const { code, stdout, stderr } = await docker(words, more)
  if (code !== 0)
    throw new Error(`docker ${words.join(' ')}: exit code ${code}\n${stdout.slice(-2000)}\n${stderr.slice(-4000)}`)
  return stdout
}
