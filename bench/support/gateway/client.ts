/**
 * Client of the gateway's bench, in a process of its own: sends calls over HTTP and times them.
 *
 * in   argv: address, calls in flight, calls, characters of a prompt, ms over which the first calls begin, a mode, and
 *      calls that come first and are not counted. Modes: `stream` or `whole` for calls of many conversations; `turns`
 *      for one conversation, in which the characters are those of each turn's new messages
 * out  a line once the first calls are over; then one JSON line: milliseconds from request to first text of each call,
 *      milliseconds of all calls together, and this process's CPU time for them
 * The first calls open the connections, and V8 compiles this process's code: time of the load generator, not of what it
 * measures.
 */
import { Agent, request } from 'node:http'

const [address, flight, calls, characters, pacedMs, mode, uncounted = '0'] = process.argv.slice(2)
const url = new URL(`${address}/v1/chat/completions`)
const agent = new Agent({ keepAlive: true, maxSockets: Number(flight) })
const isStreamed = mode === 'stream'

interface Message {
  readonly role: string
  readonly content: string
}

interface Answered {
  /** Time until the first text of a stream, or until the whole answer, ms. */
  readonly ms: number
  readonly text: string
}

function ask(key: string, messages: readonly Message[]): Promise<Answered> {
  const body = JSON.stringify({ model: 'm', stream: isStreamed, messages })
  const headers = { authorization: `Bearer ${key}`, 'content-length': Buffer.byteLength(body) }
  return new Promise((resolve, reject) => {
    const began = performance.now()
    let first: number | undefined
    let text = ''
    const sent = request(url, { agent, method: 'POST', headers }, response => {
      if (response.statusCode !== 200) reject(new Error(`${url} answered HTTP ${response.statusCode}, expected 200`))
      response.on('data', (data: Buffer) => {
        if (first === undefined && (!isStreamed || data.includes('"content":"'))) first = performance.now() - began
        text += data
      })
      response.on('end', () => resolve({ ms: first ?? performance.now() - began, text }))
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

const lorem = (title: string) => `${title}: ${'lorem ipsum '.repeat(Math.ceil(Number(characters) / 12))}`

async function turns(times: number[]): Promise<void> {
  const messages: Message[] = [{ role: 'system', content: 'S' }]
  for (let turn = 0; turn < Number(calls); turn++) {
    messages.push({ role: 'user', content: lorem(`turn ${turn}`) })
    const { ms, text } = await ask('long', messages)
    times.push(ms)
    messages.push((JSON.parse(text) as { choices: { message: Message }[] }).choices[0]!.message)
  }
}

let asked = 0

async function conversations(times: number[], count: number): Promise<void> {
  const end = asked + count
  const work = async (worker: number) => {
    const wait = (Number(pacedMs) * worker) / Number(flight)
    if (wait > 0) await new Promise(resolve => setTimeout(resolve, wait))
    while (asked < end) {
      const content = lorem(`call ${asked++} of ${worker}`)
      times.push((await ask(`worker-${worker}`, [{ role: 'user', content }])).ms)
    }
  }
  await Promise.all(Array.from({ length: Number(flight) }, (_, worker) => work(worker)))
}

async function main(): Promise<void> {
  const firstMs: number[] = []
  if (Number(uncounted) > 0) await conversations([], Number(uncounted))
  process.stdout.write('counting\n')
  const began = performance.now()
  const cpu = process.cpuUsage()
  await (mode === 'turns' ? turns(firstMs) : conversations(firstMs, Number(calls)))
  const wallMs = performance.now() - began
  const { user, system } = process.cpuUsage(cpu)
  process.stdout.write(`${JSON.stringify({ firstMs, wallMs, cpuMs: (user + system) / 1000 })}\n`)
  agent.destroy()
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exitCode = 1
})
