/** The trackers' own servers and readers, in the venv that tests/trackers/setUp.js makes. */
import { execFile } from 'node:child_process'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { packageRoot } from '../../runtime/python'
import { freePort, type ServerProcess, startServerProcess } from './serverProcess'

export const trackerServers = resolve(
  process.env.TROUPE_TRACKER_SERVERS_VENV ?? join(packageRoot(), '.venv-tracker-servers'),
)
const python = join(trackerServers, 'bin/python')

/** Runs a Python program with a tracker's own reader. Returns the JSON that it prints. */
export async function readWith<T>(program: string, args: readonly string[], interpreter = python): Promise<T> {
  const { stdout } = await promisify(execFile)(interpreter, ['-c', program, ...args], { timeout: 120_000 })
  return JSON.parse(stdout) as T
}

export const startTrackio = (directory: string, token: string): Promise<ServerProcess> =>
  startServerProcess({
    kind: 'Trackio',
    python,
    args: port => [
      '-c',
      'import sys, time, trackio\ntrackio.show(block_thread=False, open_browser=False, server_port=int(sys.argv[1]))\ntime.sleep(1e6)',
      String(port),
    ],
    env: { TRACKIO_DIR: directory, TRACKIO_WRITE_TOKEN: token },
    upPath: '/version',
  })

export const startMlflow = (directory: string): Promise<ServerProcess> =>
  startServerProcess({
    kind: 'MLflow',
    python,
    args: port => [
      ...['-m', 'mlflow', 'server', '--host', '127.0.0.1', '--port', String(port), '--workers', '1'],
      ...['--backend-store-uri', `sqlite:///${directory}/mlflow.db`, '--default-artifact-root', directory],
    ],
    env: {},
    upPath: '/health',
  })

/** Phoenix, a receiver of OpenTelemetry's traces over OTLP. */
export const startPhoenix = async (directory: string): Promise<ServerProcess> => {
  const grpcPort = await freePort()
  return startServerProcess({
    kind: 'Phoenix',
    python,
    args: port => [
      '-c',
      `import os, runpy, sys
os.environ['PHOENIX_PORT'] = sys.argv[1]
sys.argv = ['phoenix', 'serve']
runpy.run_module('phoenix.server.main', run_name='__main__')`,
      String(port),
    ],
    env: {
      ...{ PHOENIX_WORKING_DIR: directory, PHOENIX_HOST: '127.0.0.1', PHOENIX_TELEMETRY_ENABLED: 'false' },
      PHOENIX_GRPC_PORT: String(grpcPort),
    },
    upPath: '/healthz',
  })
}
