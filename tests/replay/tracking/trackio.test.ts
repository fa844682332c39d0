/** `trackio:URL`: rows and alerts have ids by which Trackio keeps each once, and answers that are lost are asked for again. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Point } from '../../../replay/tracking/runPoints'
import { trackioTracker } from '../../../replay/tracking/trackio'

type Row = Readonly<Record<string, unknown>>

/** Keeps rows by id, as Trackio's tables do (`INSERT OR IGNORE` under a unique index). The first answer is lost. */
async function startServer() {
  const rows = new Map<string, Row>()
  let calls = 0
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', chunk => {
      body += chunk
    })
    request.on('end', () => {
      if (request.headers['x-trackio-write-token'] !== 'right')
        return void response.writeHead(400).end('{"error":"A write_token is required"}')
      const { logs = [], alerts = [] } = JSON.parse(body) as { logs?: Row[]; alerts?: Row[] }
      for (const row of [...logs, ...alerts]) {
        const id = String(row.log_id ?? row.alert_id)
        if (!rows.has(id)) rows.set(id, row)
      }
      if (calls++ === 0) return void request.socket.destroy()
      response.end('{"data":null}')
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const close = () => new Promise<void>(resolve => server.close(() => resolve()))
  return { rows, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close }
}

const points: readonly Point[] = [
  { key: 'step/1', step: 1, at: 1000, values: { 'train/passAt1': 0.5 } },
  { key: 'alarm/kv/2000', step: 0, at: 2000, values: {}, texts: { 'alarm/kv': 'full' } },
]

test('a point whose answer was lost is sent again under the same id, with the recipe and the alarm', async () => {
  const server = await startServer()
  try {
    const tracker = trackioTracker(server.url, 'r', {}, { TRACKIO_WRITE_TOKEN: 'right' })
    await tracker.begin({ recipe: { name: 'maths' }, versions: { node: '22' } } as never)
    await expect(tracker.keep(points)).rejects.toMatchObject({ code: 'tracker.unreachable', retriable: true })
    await tracker.keep(points)
    await tracker.keep(points)
    const own = { project: 'maths', run: 'r', run_id: 'r' }
    expect([...server.rows.values()]).toEqual([
      {
        ...{ ...own, log_id: 'r/step/1', step: 1, metrics: { 'train/passAt1': 0.5 } },
        config: { name: 'maths', versions: { node: '22' } },
      },
      {
        ...{ ...own, alert_id: 'r/alarm/kv/2000', title: 'alarm/kv', text: 'full', level: 'warn' },
        timestamp: '1970-01-01T00:00:02.000Z',
      },
    ])
    const stranger = trackioTracker(server.url, 'r', {}, {})
    await expect(stranger.keep(points)).rejects.toMatchObject({
      code: 'tracker.refused',
      hint: expect.stringContaining('TRACKIO_WRITE_TOKEN'),
    })
  } finally {
    await server.close()
  }
})
