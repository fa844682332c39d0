/**
 * A gateway in a process of its own, over a log on disk, that ends itself by SIGKILL at a point of a call.
 *
 * in   argv: directory of the log, port; stdin: lines with the name of the point at which to die. Ends when stdin ends
 * out  lines: the address once it listens, then each point as it was taken
 */
import { createInterface } from 'node:readline'
import { openGateway } from '../../../gateway/openGateway'
import { systemEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { charRenderer } from './charRenderer'
import { limits } from './openTestGateway'
import { scriptedEngine } from './scriptedEngine'

const [directory, port] = process.argv.slice(2)

async function main(): Promise<void> {
  const troupe = await openTroupe({ bus: `lmdb:${directory}`, run: 'r' })
  let deadly: string | undefined
  const gateway = await openGateway({
    ...{ journal: troupe.journal, renderer: charRenderer(), fx: systemEffects, log: { warn() {} } },
    // The text names the seed, which is the call's: an answer that is generated again under it is the same.
    engines: [scriptedEngine((_context, _turn, { seed }) => `answer of seed ${seed}`)],
    ...{ host: '127.0.0.1', port: Number(port), seed: 1, limits },
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 },
    atPoint(at) {
      if (at === deadly) process.kill(process.pid, 'SIGKILL')
      return undefined
    },
  })
  const lines = createInterface({ input: process.stdin })
  lines.on('line', point => {
    deadly = point
    process.stdout.write(`${point}\n`)
  })
  lines.on('close', () => process.exit())
  process.stdout.write(`${gateway.url}\n`)
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exitCode = 1
})
