/** Starts a server program that has a child process, prints the pids of server and child, and waits until it is killed. */
import { startServerProcess } from '../../backends/engines/launch/serverProcess'

void (async () => {
  const server = await startServerProcess({
    ...{ name: 'e', env: {}, healthPath: '/health', startTimeoutMs: 20_000, signal: new AbortController().signal },
    command: (port, token) => ({ command: [process.execPath, process.argv[2]!, String(port)], env: { TOKEN: token } }),
  })
  const pids = (await (await fetch(`${server.url}/pids`)).json()) as number[]
  process.stdout.write(`${JSON.stringify([server.pid, ...pids])}\n`)
  setInterval(() => {}, 1000)
})()
