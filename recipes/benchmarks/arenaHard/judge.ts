/**
 * Asks a judge model behind an OpenAI-compatible endpoint.
 *
 * in   chat messages        out  the model's text
 * Invariant: at most `atOnce` requests are in flight, each with a deadline. A request is tried up to four times if the
 * server is busy or fails (408, 429, 5xx), sends no answer in time, or loses the connection. The final error quotes the
 * start of the server's reply, or the fault of the connection; Troupe never writes the key into it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import type { RewardContext } from '../../../config'
import type { ChatMessage } from '../../../messages/facts'
import { asError, failedRequest, TroupeError } from '../../../runtime/errors'
import { excerpt } from '../../../runtime/secrets/knownSecrets'
import { resolveSecret, secretSchema } from '../../../runtime/secrets/secretReference'

export const judgeSchema = z.strictObject({
  /** Base URL of the judge's server, with or without `/v1` at its end. */
  url: z.string().regex(/^https?:\/\/[^@\s]+$/, 'an http or https URL without a password'),
  model: z.string().min(1),
  apiKey: secretSchema.optional(),
  temperature: z.number().nonnegative().default(0),
  maxTokens: z.number().int().positive().default(4096),
  timeoutMs: z.number().int().positive().default(120_000),
  /** Upper bound on the requests in flight to this judge. */
  atOnce: z.number().int().positive().default(8),
})
export type JudgeConfig = z.output<typeof judgeSchema>

const maxTries = 4
const replySchema = z.object({
  choices: z
    .array(z.object({ message: z.object({ content: z.string().nullish(), refusal: z.string().nullish() }) }))
    .min(1),
})

export interface JudgeReply {
  readonly text: string
  /** Text that the model returned instead of an answer, if it refused. */
  readonly refusal: string | undefined
}

/**
 * Makes the client of the judge. A call rejects with TroupeError verifier.judge_failed, config.no_secret (the API key
 * cannot be read), or with the signal's reason.
 */
export function judgeModel(config: JudgeConfig) {
  let running = 0
  const waiting: (() => void)[] = []
  const lane = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      signal.throwIfAborted()
      if (running < config.atOnce) {
        running++
        return resolve()
      }
      const enter = () => {
        signal.removeEventListener('abort', giveUp)
        resolve()
      }
      const giveUp = () => {
        waiting.splice(waiting.indexOf(enter), 1)
        reject(signal.reason)
      }
      waiting.push(enter)
      signal.addEventListener('abort', giveUp, { once: true })
    })
  const leave = () => {
    const next = waiting.shift()
    if (next === undefined) running--
    else next()
  }

  async function once(messages: readonly ChatMessage[], signal: AbortSignal): Promise<JudgeReply> {
    const { url, model, apiKey, temperature, maxTokens } = config
    const base = url.replace(/\/+$/, '').replace(/\/v1$/, '')
    const response = await fetch(`${base}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(apiKey === undefined ? {} : { authorization: `Bearer ${resolveSecret(apiKey)}` }),
      },
      body: JSON.stringify({ model, messages, temperature, max_tokens: maxTokens }),
      signal,
    })
    const body = await response.text()
    if (!response.ok)
      throw failed(
        `the judge at ${base} answered HTTP ${response.status}: ${excerpt(body, 200)}`,
        isBusy(response.status),
      )
    const read = replySchema.safeParse(jsonOf(body))
    if (!read.success)
      throw failed(`the judge at ${base} did not answer with a chat completion: ${excerpt(body, 200)}`, false)
    const { content, refusal } = read.data.choices[0]!.message
    return { text: content ?? '', refusal: refusal ?? undefined }
  }

  /**
   * Asks the judge. The wait for a free request slot (`atOnce` of them) does not count towards the reward's deadline
   * (`aside`).
   */
  return async (
    messages: readonly ChatMessage[],
    { signal, aside }: Pick<RewardContext, 'signal' | 'aside'>,
  ): Promise<JudgeReply> => {
    await aside(lane(signal))
    try {
      for (let attempt = 1; ; attempt++) {
        const late = AbortSignal.timeout(config.timeoutMs)
        try {
          return await once(messages, AbortSignal.any([signal, late]))
        } catch (thrown) {
          signal.throwIfAborted()
          const error = asError(thrown)
          const final = error instanceof TroupeError && !error.retriable
          if (final) throw error
          const why = late.aborted ? `no answer within ${config.timeoutMs} ms` : failedRequest(error)
          if (attempt >= maxTries) throw failed(`the judge at ${config.url} failed ${maxTries} times: ${why}`, true)
          await sleep(250 * 2 ** attempt, undefined, { signal })
        }
      }
    } finally {
      leave()
    }
  }
}

const isBusy = (status: number) => status === 408 || status === 429 || status >= 500

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const failed = (message: string, retriable: boolean) =>
  new TroupeError('verifier.judge_failed', {
    boundary: 'verifier',
    retriable,
    message,
    hint: 'check --judge URL (an OpenAI-compatible server), --judge-model (one of its models) and, if it needs a key, --judge-key-env',
  })
