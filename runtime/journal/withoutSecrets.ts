/**
 * Removes known secrets from a message before it is appended to the log: from texts that a server, a tool, a child
 * process or an error gave, not from what a person or a model wrote.
 *
 * in   a message        out  the same message, or a copy without the secrets
 * Invariant: the reason of a failure loses every known secret, the result of a tool only a long one, since a short one
 * may be a word there and the result is training data.
 */
import type { Message } from '../../messages'
import { longSecret, redactSecrets } from '../secrets/knownSecrets'

type TextFields = { readonly [T in Message['type']]?: readonly (keyof Extract<Message, { type: T }>)[] }

/** Fields with the reason of a failure, or what an actor says of itself. */
const reasons: TextFields = {
  'actor.status': ['reason'],
  'alarm.raised': ['message'],
  'call.finished': ['error'],
  'engine.left': ['reason'],
  'executor.refused': ['reason'],
  'record.refused': ['error'],
  'reward.assigned': ['why'],
  'reward.failed': ['how', 'why'],
  'rollout.finished': ['reason'],
  'run.finished': ['reason'],
  'stage.changed': ['reason'],
  'step.rejected': ['reason'],
  'turn.interrupted': ['error'],
}

export function withoutSecrets(message: Message): Message {
  if (message.type === 'tool.completed') {
    const [text, stdout, stderr] = [message.text, message.stdout, message.stderr].map(one =>
      redactSecrets(one, longSecret),
    ) as [string, string, string]
    const { fault } = message.step ?? {}
    const step =
      fault === undefined ? {} : { step: { ...message.step!, fault: withoutSecretsIn(fault, ['how', 'why']) } }
    return { ...message, text, stdout, stderr, ...step }
  }
  const fields = reasons[message.type] as readonly (keyof Message)[] | undefined
  return fields === undefined ? message : withoutSecretsIn(message, fields)
}

function withoutSecretsIn<O extends object>(object: O, fields: readonly (keyof O)[]): O {
  const changed = fields.flatMap(field => {
    const text = object[field]
    const shown = typeof text === 'string' ? redactSecrets(text) : text
    return shown === text ? [] : [[field, shown]]
  })
  return changed.length === 0 ? object : { ...object, ...Object.fromEntries(changed) }
}
