/**
 * Builds an image from a Dockerfile with a Docker engine's classic builder. Its steps have a network; what needs
 * BuildKit (`RUN --mount`, here-documents) fails.
 *
 * in   a Dockerfile, its context        out  the image's id in the Docker engine; TroupeError environment.no_image
 * The engine's cache decides which steps are built again. The engine may fetch the base image, as `docker build` does.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { relative } from 'node:path'
import type { Readable } from 'node:stream'
import { environmentError } from '../drivers/errors'
import type { BuildOptions } from '../images/buildImage'
import type { DockerDriver } from './dockerDriver'

/**
 * Builds the image, or takes it from the Docker engine's cache; resolves with its id. @throws TroupeError
 * environment.no_image with the engine's own message, and with the end of what the build printed
 */
export async function buildDockerImage({ engine }: DockerDriver, options: BuildOptions): Promise<string> {
  const { file, context, timeoutMs, signal } = options
  const name = `troupe-build:${createHash('sha256').update(file).digest('hex').slice(0, 32)}`
  const tar = spawn('tar', ['-C', context, '--create', '.'], { stdio: ['ignore', 'pipe', 'ignore'] })
  const query = { t: name, dockerfile: relative(context, file), forcerm: 1 }
  try {
    const answer = await engine.raw('POST', '/build', {
      ...{ query, stream: tar.stdout, deadlineMs: timeoutMs },
      signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(signal === undefined ? [] : [signal])]),
    })
    const { error, log } = await outcome(answer)
    if (error !== undefined) throw new Error(`${error}\n${log.slice(-2000)}`)
    return (await engine.call<{ Id: string }>('GET', `/images/${name}/json`)).Id
  } catch (thrown) {
    signal?.throwIfAborted()
    const why = thrown instanceof Error ? thrown.message : String(thrown)
    throw environmentError('environment.no_image', `${file} was not built: ${why}`)
  }
}

/** Reads the build's progress, one JSON object per line. */
async function outcome(answer: Readable): Promise<{ readonly error?: string; readonly log: string }> {
  let [rest, log] = ['', '']
  let error: string | undefined
  for await (const part of answer) {
    const lines = (rest + part).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines.filter(text => text.trim() !== '')) {
      const said = JSON.parse(line) as { readonly stream?: string; readonly error?: string }
      log = (log + (said.stream ?? '')).slice(-16_384)
      error ??= said.error
    }
  }
  return { log, ...(error === undefined ? {} : { error }) }
}
