/**
 * Starts a server as a process of the run (`engine.launch`) and connects an engine to it.
 *
 * in   the recipe, the model's directory, the GPUs that the server may use
 * out  the engine; closing it ends the server
 * Invariant: server and engine end together. If the server's process dies, the engine is lost, and its process actor
 * starts a new server, on another port and with another key, and a new engine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../backends/engines/engine'
import { launchCommand } from '../../backends/engines/launch/command'
import { startServerProcess } from '../../backends/engines/launch/serverProcess'
import { checkModelFiles } from '../../backends/weights/modelFiles'
import { architectureIn } from '../../config/estimate/architecture'
import type { EngineId } from '../../messages/ids'
import type { RestartPolicy } from '../../runtime/actor/restartPolicy'
import { vllmPythonPath } from '../../runtime/python'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
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
 * Restart policy: the fourth death of a launched engine within 2 hours is final. The window is longer than for a local
 * engine, since a server takes minutes to start.
 */
export const launchedRestarts: Partial<RestartPolicy> = { maxRestarts: 3, withinMs: 7_200_000 }

/** Time in ms to wait, after the connection broke, for the report that the server's process ended. */
const endedMs = 2000

/**
 * Paths that answer 200 once the server is ready. SGLang's /health generates a token, which a paused server cannot do.
 */
const healthPaths = { vllm: '/health', sglang: '/ping' } as const

/**
 * Starts the server and connects to it. Rejects with engine.model_damaged, process.start_failed, process.start_timeout,
 * or the errors of `startServer`.
 */
export async function startLaunched(options: LaunchedOptions): Promise<Engine> {
  const { config, log, id, directory, renderer, env = {} } = options
  const { signal = new AbortController().signal } = options
  await rejectOnAbort(checkModelFiles(directory), signal)
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
      // The process's error says more than the connection's, but it comes shortly after the connection breaks, so this
      // waits for it for up to `endedMs`.
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
