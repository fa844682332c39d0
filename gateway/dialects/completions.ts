/**
 * Dialect of OpenAI's completions: a text that the model continues, without a chat template.
 *
 * in   bodies of POST /v1/completions        out  text_completion objects, chunks, errors
 * Invariant: the prompt is the whole context. A completion continues no other call, and no other call continues it.
 */
import { z } from 'zod'
import { invalid } from '../gatewayError'
import { openaiUsage } from './chat'
import { type AnswerView, anyObject, askedOf, checked, type DialectAdapter, event, samplingFields } from './dialect'
import { openaiError } from './openaiError'

const body = z.looseObject({
  model: z.string(),
  ...samplingFields,
  prompt: z.union([z.string(), z.array(z.unknown())]),
  max_tokens: z.int().positive().nullish(),
  n: z.number().nullish(),
  best_of: z.number().nullish(),
  echo: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
})

const recorded = ['temperature', 'top_p', 'stop', 'seed', 'logprobs', 'suffix', 'presence_penalty', 'frequency_penalty']
/** Upper bound in tokens on an answer whose request names none, as in OpenAI's reference. */
const usualMaxTokens = 16

const textOf = ({ message: { thinking, content } }: Pick<AnswerView, 'message'>) =>
  thinking === '' ? content : `<think>${thinking}</think>${content}`

export const completions: DialectAdapter = {
  parse(raw) {
    const given = checked(body, raw)
    const count = given.n ?? 1
    if (count !== 1 || (given.best_of ?? 1) !== 1)
      throw invalid('n and best_of: only 1 is supported; send the request again for another', 'n', 'unsupported_n')
    if (given.echo) throw invalid('echo: not supported', 'echo')
    const prompts = typeof given.prompt === 'string' ? [given.prompt] : given.prompt
    if (prompts.length !== 1 || typeof prompts[0] !== 'string' || prompts[0] === '')
      throw invalid(
        'prompt: expected one text that is not empty; token ids and several prompts are not supported',
        'prompt',
        'unsupported_prompt',
      )
    return {
      ...{ dialect: 'completions', model: given.model, tools: [], isStreamed: given.stream === true },
      messages: [{ role: 'user', content: prompts[0] }],
      withUsage: given.stream_options?.include_usage === true,
      maxTokens: given.max_tokens ?? usualMaxTokens,
      asked: askedOf(checked(anyObject, raw), recorded),
    }
  },

  answer: view => ({
    ...{
      id: `cmpl-${view.id}`,
      object: 'text_completion',
      created: Math.floor(view.createdMs / 1000),
      model: view.model,
    },
    choices: [{ index: 0, text: textOf(view), logprobs: null, finish_reason: view.finish }],
    usage: openaiUsage(view),
  }),

  stream({ id, createdMs, model }, request) {
    const chunk = (text: string, finish: string | null = null) =>
      event({
        ...{ id: `cmpl-${id}`, object: 'text_completion', created: Math.floor(createdMs / 1000), model },
        choices: [{ index: 0, text, logprobs: null, finish_reason: finish }],
      })
    return {
      keepAlive: ': keep-alive\n\n',
      begin: () => '',
      delta: ({ text }) => chunk(text),
      end(view) {
        const head = {
          id: `cmpl-${id}`,
          object: 'text_completion',
          created: Math.floor(createdMs / 1000),
          model,
          choices: [],
        }
        const usage = request.withUsage ? event({ ...head, usage: openaiUsage(view) }) : ''
        return `${chunk('', view.finish)}${usage}data: [DONE]\n\n`
      },
      failed: error => event(openaiError(error)),
    }
  },

  error: openaiError,
}
