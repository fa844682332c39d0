/**
 * Requests to a tracker's server: each has a deadline, and its error says whether the same request may succeed later.
 *
 * in   a URL, headers, a body        out  the status and the text of the answer
 * Invariant: a request ends within its deadline, whether the server is absent, silent or slow.
 */
import { failedRequest, TroupeError } from '../../runtime/errors'
import { knowAddress, knowVariables } from '../../runtime/secrets/credentials'
import { excerpt } from '../../runtime/secrets/knownSecrets'

export interface Answer {
  readonly status: number
  readonly text: string
}

const usualDeadlineMs = 10_000

/**
 * Sends a request; without a body it is a GET, else a POST. `server`: the server's address for the error.
 * @throws TroupeError tracker.unreachable
 */
export async function trackerRequest(
  url: string,
  server: string,
  headers: Readonly<Record<string, string>>,
  body?: string | Uint8Array<ArrayBuffer>,
  deadlineMs = usualDeadlineMs,
): Promise<Answer> {
  knowAddress(url)
  knowVariables(headers)
  const signal = AbortSignal.timeout(deadlineMs)
  const request = body === undefined ? { headers, signal } : { method: 'POST', body, headers, signal }
  return fetch(url, request)
    .then(async answer => ({ status: answer.status, text: await answer.text() }))
    .catch(cause => {
      throw new TroupeError('tracker.unreachable', {
        boundary: 'process',
        retriable: true,
        message: `${server} cannot be reached: ${signal.aborted ? `no answer in ${deadlineMs / 1000} s` : failedRequest(cause)}`,
        hint: "start the server, or correct its address; the run's log keeps everything that was not sent",
        cause,
      })
    })
}

/** True for statuses after which the same request may succeed later. */
const isLater = (status: number): boolean => status === 408 || status === 429 || status >= 500

/**
 * Error for a request that a server answered, but without success: tracker.unreachable if the same request may succeed
 * later, else tracker.refused. `named`: the error's name in the server's protocol, such as RESOURCE_DOES_NOT_EXIST.
 */
export class TrackerRefusal extends TroupeError {
  constructor(
    server: string,
    { status, text }: Answer,
    hint: string,
    readonly named?: string,
  ) {
    super(isLater(status) ? 'tracker.unreachable' : 'tracker.refused', {
      boundary: 'process',
      retriable: isLater(status),
      message: `${server} answered ${status}: ${excerpt(text, 300)}`,
      hint,
    })
  }
}
