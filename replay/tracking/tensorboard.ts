/**
 * TensorBoard as a tracker: event files in `DIR/RUN`, written directly.
 *
 * in   `run.started`, points of a run        out  one event file of the run
 * Invariant: the file itself says which points it holds: each point's values are followed by its key, under the tag
 * `troupe/point`. A restart cuts the file off at the first frame that is torn or damaged, and skips points whose keys
 * the file has, so nothing is lost or repeated.
 */
import { mkdir, open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunStarted } from '../../messages/facts'
import type { Point, Tracker } from './runPoints'
import { event, frame, framesOf, versionEvent } from './tfRecords'

/** Tag under which the key of a point is kept as a text. */
const keyTag = 'troupe/point'

/** Opens the event file of `run` below `directory`, a new one or that of an earlier call. */
export async function tensorboardTracker(directory: string, run: string): Promise<Tracker> {
  const at = join(directory, run)
  await mkdir(at, { recursive: true })
  const file = join(at, `events.out.tfevents.0000000000.${run}`)
  const { frames, end } = framesOf(await readFile(file).catch(() => Buffer.alloc(0)))
  const known = new Set(frames.flatMap(keysIn))
  const handle = await open(file, end === 0 ? 'w' : 'r+')
  if (end > 0) await handle.truncate(end)
  let place = end

  async function write(events: readonly Buffer[]): Promise<void> {
    const bytes = Buffer.concat(events.map(frame))
    for (let done = 0; done < bytes.length; )
      done += (await handle.write(bytes, done, bytes.length - done, place + done)).bytesWritten
    await handle.datasync()
    place += bytes.length
  }
  const eventOf = ({ key, at: time, step, values, texts }: Point) =>
    event(time, step, values, { ...texts, [keyTag]: key })

  return {
    async begin({ at: began, recipe, versions }: RunStarted) {
      if (place > 0) return
      const described = { recipe: fenced(recipe), versions: fenced(versions) }
      await write([versionEvent(began), event(began, 0, {}, described)])
    },
    async keep(points) {
      const fresh = points.filter(({ key }) => !known.has(key))
      if (fresh.length === 0) return
      await write(fresh.map(eventOf))
      for (const { key } of fresh) known.add(key)
    },
    close: () => handle.close(),
  }
}

/** Formats a value as a code block of JSON, because TensorBoard renders texts as Markdown. */
const fenced = (value: unknown): string => `\`\`\`json\n${JSON.stringify(value, undefined, 2)}\n\`\`\``

/**
 * Reads the point's key from a frame that Troupe wrote: the value of the frame's last text, which has the tag
 * `troupe/point`. Returns an empty list if there is none.
 */
function keysIn(data: Buffer): string[] {
  const tag = data.lastIndexOf(keyTag)
  if (tag < 0) return []
  // After the tag: the tensor (field 8) with its type, its shape and the string's field (8, length-delimited), then the
  // text.
  const start = data.indexOf(Buffer.from([0x08, 0x07, 0x12, 0x04, 0x12, 0x02, 0x08, 0x01, 0x42]), tag)
  if (start < 0) return []
  let [at, length, shift] = [start + 9, 0, 0]
  for (let byte = 128; byte & 128; shift += 7) {
    byte = data[at++] ?? 0
    length |= (byte & 127) << shift
  }
  return [data.toString('utf8', at, at + length)]
}
