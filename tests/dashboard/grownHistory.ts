/**
 * The quickstart's saved history in two parts, as a run that goes on: of each partition the first part, and later the rest.
 * What the model wrote in its first turn is hostile.
 *
 * in   a directory        out  the first part as a run on lmdb; the rest appended by another process, as a live run's is
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { runDirectory } from '../../runtime/runDirectory'
import { quickstartHistory, recordsOf, saveHistory } from '../support/histories'

export const hostile = `<script>hacked=1</script><img src=x onerror=hacked=1></textarea><a href="javascript:hacked=1">x</a>\u202e\u0000\u001b[2J${'y'.repeat(200_000)}`

const whole = quickstartHistory()
const records = whole.records.map(record =>
  record.message.type === 'turn.completed' && record.message.turn === 0
    ? { ...record, message: { ...record.message, text: hostile } }
    : record,
)
const placeOf = ({ topic, partition }: (typeof records)[number]) => `${topic}:${partition}`
const counts = new Map<string, number>()
for (const record of records) counts.set(placeOf(record), (counts.get(placeOf(record)) ?? 0) + 1)
const seen = new Map<string, number>()
const isFirst = records.map(record => {
  const before = seen.get(placeOf(record)) ?? 0
  seen.set(placeOf(record), before + 1)
  return before < 0.7 * counts.get(placeOf(record))!
})

export const history = { ...whole, records }
export const firstPart = { ...whole, records: records.filter((_, i) => isFirst[i]) }
export const rest = { ...whole, records: records.filter((_, i) => !isFirst[i]) }

export const saveFirstPart = (directory: string): Promise<void> => saveHistory(directory, firstPart)

/** lmdb allows a process to open a log once, so the rest is appended by a process of its own. */
export function appendRest(directory: string): Promise<void> {
  const register = join(__dirname, '../../cli/register.js')
  const child = spawn(process.execPath, ['-r', register, __filename, directory], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', code => (code === 0 ? resolve() : reject(new Error(`appending ended with exit code ${code}`))))
  })
}

async function append(directory: string): Promise<void> {
  const bus = await openLmdbBus({ directory: runDirectory(directory, runId(whole.run)).log, mode: 'write' })
  const appended = recordsOf(rest)
  for (let at = 0; at < appended.length; at += 100) await bus.append(appended.slice(at, at + 100))
  await bus.close()
}

if (require.main === module) void append(process.argv[2]!)
