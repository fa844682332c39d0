/**
 * Trackio as a tracker, over the HTTP API of its server (`trackio show`, or a Space of Hugging Face).
 *
 * in   points of a run        out  metrics by step, the recipe as the run's configuration, alarms as alerts
 * Invariant: every row and alert has an id made of the run and the point's key, and Trackio ignores a row or an alert
 * whose id it already has. So any call may be made again.
 */

import { knowSecret } from '../../runtime/secrets/knownSecrets'
import { type Answer, TrackerRefusal, trackerRequest } from './http'
import type { Point, Tracker } from './runPoints'

const rowsPerCall = 500

export interface TrackioOptions {
  /** Project to put the run into (default: the recipe's name). */
  readonly project?: string
  /** Deadline of one call, in ms. */
  readonly deadlineMs?: number
}

export function trackioTracker(
  url: string,
  run: string,
  { project: given, deadlineMs }: TrackioOptions = {},
  env = process.env,
): Tracker {
  const base = url.replace(/\/+$/, '')
  const headers = { 'content-type': 'application/json', ...credentials(env) }
  let project = given ?? 'troupe'
  let config: Readonly<Record<string, unknown>> = {}

  async function call(name: string, body: Readonly<Record<string, unknown>>): Promise<void> {
    const sent = JSON.stringify({ ...body, hf_token: null })
    const answer = await trackerRequest(`${base}/api/${name}`, base, headers, sent, deadlineMs)
    if (answer.status !== 200) throw refused(answer)
  }
  // Trackio answers 400 if the token is missing or wrong.
  const refused = (answer: Answer) =>
    new TrackerRefusal(
      base,
      answer,
      'check the address, and the token: TRACKIO_WRITE_TOKEN (`trackio show` prints it), or HF_TOKEN for a Space',
    )

  return {
    async begin({ recipe, versions }) {
      project = given ?? String(recipe.name ?? 'troupe')
      config = { ...recipe, versions }
    },
    async keep(points: readonly Point[]) {
      const rows = points.filter(({ values }) => Object.keys(values).length > 0)
      for (let first = 0; first < rows.length; first += rowsPerCall)
        await call('bulk_log', {
          logs: rows.slice(first, first + rowsPerCall).map(({ key, step, values: metrics }) => ({
            ...{ project, run, run_id: run, log_id: `${run}/${key}` },
            ...{ metrics, step, config },
          })),
        })
      const alerts = points.flatMap(({ key, at, texts = {} }) =>
        Object.entries(texts).map(([title, text]) => ({
          ...{ project, run, run_id: run, alert_id: `${run}/${key}` },
          ...{ title, text, level: 'warn', timestamp: new Date(at).toISOString() },
        })),
      )
      if (alerts.length > 0) await call('bulk_alert', { alerts })
    },
    async close() {},
  }
}

function credentials(env: NodeJS.ProcessEnv): Record<string, string> {
  const { TRACKIO_WRITE_TOKEN: token, HF_TOKEN: hub } = env
  return {
    ...(token ? { 'x-trackio-write-token': knowSecret(token) } : {}),
    ...(hub ? { authorization: knowSecret(`Bearer ${hub}`) } : {}),
  }
}
