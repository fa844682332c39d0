/** Shapes (field tables for checking) that several messages share. */
import type { Outcome, Sampling, Task } from '../facts'
import type { FieldsOf, ShapeOf } from '../shape'
import type { Message, MessageType } from '../topics'

type MessageOf<T extends MessageType> = Extract<Message, { readonly type: T }>

export type ShapesOf<T extends MessageType> = {
  readonly [K in T]: { readonly version: number; readonly fields: ShapeOf<MessageOf<K>> }
}

export const sampling = {
  temperature: 'number',
  topP: 'number',
  topK: 'int',
  minP: 'number',
  stopTokens: { each: 'int' },
} as const satisfies FieldsOf<Sampling>

export const task = {
  id: 'string',
  messages: {
    each: {
      fields: { role: { oneOf: { system: true, user: true, assistant: true, tool: true } }, content: 'string' },
    },
  },
  truth: 'string',
  reward: 'string',
  metadata: { optional: { map: 'unknown' } },
} as const satisfies FieldsOf<Task>

export const controlOrder = { oneOf: { pause: true, resume: true, drain: true, abort: true } } as const

export const outcome = { oneOf: { answered: true, truncated: true, failed: true } } as const satisfies {
  readonly oneOf: Readonly<Record<Outcome, true>>
}

export const metrics = { map: 'number' } as const

/** Fields of a ToolEnvironment. */
export const environment = { digest: 'string', python: 'string', packages: { map: 'string' } } as const
