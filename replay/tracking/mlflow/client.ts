/**
 * Client of MLflow's REST API 2.0: each call has a deadline, and its error says whether the same call may succeed
 * later.
 *
 * in   a server's URL; credentials from the environment variables of MLflow's own client        out  parsed answers
 * Invariant: a call ends within its deadline, whether the server is absent, silent or slow.
 */
import { knowSecret } from '../../../runtime/secrets/knownSecrets'
import { TrackerRefusal, trackerRequest } from '../http'

export interface MlflowClient {
  readonly url: string
  /** Calls `mlflow/PATH`: by POST with `body`, else by GET. @throws TroupeError tracker.unreachable, tracker.refused */
  call<T>(path: string, body?: Readonly<Record<string, unknown>>): Promise<T>
}

export function mlflowClient(url: string, deadlineMs?: number, env = process.env): MlflowClient {
  const base = url.replace(/\/+$/, '')
  const headers = { 'content-type': 'application/json', ...credentials(env) }
  return {
    url: base,
    async call<T>(path: string, body?: Readonly<Record<string, unknown>>) {
      const sent = body === undefined ? undefined : JSON.stringify(body)
      const { status, text } = await trackerRequest(`${base}/api/2.0/mlflow/${path}`, base, headers, sent, deadlineMs)
      const answer = parsed(text)
      if (status >= 200 && status < 300 && answer !== undefined) return answer as T
      const hint =
        status === 401 || status === 403
          ? 'set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD'
          : "check the tracker's address and the server's log; points that the server already has are not sent again"
      const said = { status, text: String(answer?.message ?? text) }
      throw new TrackerRefusal(base, said, hint, answer?.error_code as string | undefined)
    },
  }
}

/** Makes the `authorization` header from the environment variables that MLflow's own client reads. */
function credentials(env: NodeJS.ProcessEnv): Record<string, string> {
  const { MLFLOW_TRACKING_TOKEN: token, MLFLOW_TRACKING_USERNAME: user, MLFLOW_TRACKING_PASSWORD: password } = env
  if (user) {
    const basic = Buffer.from(`${user}:${password ?? ''}`).toString('base64')
    return { authorization: knowSecret(`Basic ${basic}`) }
  }
  return token ? { authorization: knowSecret(`Bearer ${token}`) } : {}
}

function parsed(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : undefined
  } catch {
    return undefined
  }
}
