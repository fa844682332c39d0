/**
 * `node -r ./cli/register.js tests/makeDemo.ts --bus lmdb:DIR --run ID`: packs a recorded run as the one that `troupe demo`
 * shows.
 *
 * The run that ships was recorded with
 *   troupe train quickstart --run quickstart-demo --steps 12 --set rollout.groupsPerStep=8 --set evaluation.problems=48
 *     --set engine.entropies=true --set engine.count=2
 * killed with SIGKILL after step 6, and resumed, so that the page has a crash to show.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { packRecording } from '../dashboard/demo/recording'
import { openLog } from '../replay/log/recordedRun'

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { bus: { type: 'string' }, run: { type: 'string' } } })
  const recorded = await openLog({
    bus: values.bus ?? 'lmdb:.troupe',
    ...(values.run === undefined ? {} : { run: values.run }),
  })
  const bytes = await packRecording(recorded.bus, recorded.run, recorded.files.model)
  await recorded.close()
  const out = join(__dirname, '../dashboard/demo/quickstart.recording')
  writeFileSync(out, bytes)
  console.error(`${out}: ${bytes.length} bytes`)
}

void main()
