/**
 * An engine over a server that the run itself starts (`engine.launch`).
 *
 * in   the recipe, the model's directory, the GPUs that the server may use
 * out  the engine; its end is the end of the server
 * Invariant: the server lives as long as the engine: it is ended with it, and an engine whose server died is lost, so
 * that its process actor starts both again, on another port and with another key.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../backends/engines/engine'
import { launchCommand } from '../../backends/engines/launch/command'
import { startServerProcess } from '../../backends/engines/launch/serverProcess'
import { architectureIn } from '../../config/estimate/architecture'
import type { EngineId } from '../../messages/ids'
import type { RestartPolicy } from '../../runtime/actor/restartPolicy'
import { vllmPythonPath } from '../../runtime/python'
import { type ServerOptions, startServer } from './serverEngine'
import type { SharedRenderer } from './sharedRenderer'

export interface LaunchedOptions extends ServerOptions {
  readonly id: EngineId
  readonly directory: string
  readonly renderer: SharedRenderer
  readonly signal: AbortSignal | undefined
  readonly env: Readonly<Record<string, string>> | undefined
}

/**
 * Restart policy. A server takes minutes to start, so the deaths that make it give up lie further apart than those of a
 * local engine: more than 3 within 2 hours.
 */
export const launchedRestarts: Partial<RestartPolicy> = { maxRestarts: 3, withinMs: 7_200_000 }

/** Milliseconds to wait, after the connection broke, for the report that the server's process ended. */
const endedMs = 2000

/** Path that answers 200 once the server serves. SGLang's /health generates a token, which a paused server cannot. */
const healthPaths = { vllm: '/health', sglang: '/ping' } as const

/** Starts the server and connects to it. Rejects with process.start_failed, process.start_timeout, or as `startServer`. */
export async function startLaunched(options: LaunchedOptions): Promise<Engine> {
  const { config, log, id, directory, renderer, env = {} } = options
  const { signal = new AbortController().signal } = options
  const architecture = architectureIn(directory)
  const server = await startServerProcess({
    ...{ name: id, env, signal, log },
    command: (port, token) =>
      launchCommand(config, { modelDirectory: directory, architecture, port, token, vllmPython: vllmPythonPath() }),
    healthPath: config.engine.kind === 'sglang' ? healthPaths.sglang : healthPaths.vllm,
    startTimeoutMs: config.engine.launch!.startTimeoutMs,
  })
  const { url, token } = server
  try {
    await renderer.ready()
    const engine = await startServer(options, { id, url, token, modelDirectory: directory, renderer })
    return {
      ...engine,
      // The connection breaks a moment before the end of the process is known, which says more.
      lost: Promise.race([server.lost, engine.lost.then(error => Promise.race([server.lost, sleep(endedMs, error)]))]),
      async close() {
        await engine.close()
        await server.close()
      },
    }
  } catch (thrown) {
    await server.close()
    throw thrown
  }
}
