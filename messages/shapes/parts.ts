/** Shapes (field tables for checking) that several messages share. */
import type { EnvironmentAt, FilesChanged, Outcome, Sampling, StepEnd, Task, TaskEnvironment } from '../facts'
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

const taskEnvironment = {
  directory: 'string',
  digest: 'string',
  driver: { oneOf: { local: true, oci: true, docker: true } },
  network: { optional: { oneOf: { 'no-network': true } } },
  storage: { optional: { oneOf: { 'no-limit': true } } },
  steps: { optional: { fields: { count: 'int', timeoutMs: 'number' } } },
} as const satisfies FieldsOf<TaskEnvironment>

export const stepEnd = {
  name: 'string',
  rewards: { map: 'number' },
  over: 'boolean',
  fault: { optional: { fields: { how: 'string', why: 'string' } } },
} as const satisfies FieldsOf<StepEnd>

export const environmentAt = {
  task: { fields: taskEnvironment },
  calls: {
    each: {
      fields: {
        tool: 'string',
        arguments: { map: 'unknown' },
        snapshot: { nullable: 'string' },
        step: { optional: { fields: stepEnd } },
      },
    },
  },
  timeoutMs: 'number',
} as const satisfies FieldsOf<EnvironmentAt>

export const filesChanged = {
  snapshot: 'string',
  before: 'string',
  files: 'int',
  bytes: 'int',
  changed: {
    each: {
      fields: { path: 'string', change: { oneOf: { added: true, changed: true, removed: true } }, bytes: 'int' },
    },
  },
  changes: 'int',
  restored: { optional: { oneOf: { snapshot: true, calls: true, 'other-files': true } } },
} as const satisfies FieldsOf<FilesChanged>

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
  environment: { optional: { fields: taskEnvironment } },
} as const satisfies FieldsOf<Task>

export const controlOrder = { oneOf: { pause: true, resume: true, drain: true, abort: true } } as const

export const outcome = { oneOf: { answered: true, truncated: true, failed: true } } as const satisfies {
  readonly oneOf: Readonly<Record<Outcome, true>>
}

export const metrics = { map: 'number' } as const

/** Shape of a ToolEnvironment (interpreter and packages of the model's code). */
export const environment = { digest: 'string', python: 'string', packages: { map: 'string' } } as const
