/**
 * The shape and the schema version of every message. A field or a literal that a type has and this table has not (or the
 * other way round) fails to compile; a type of message that is missing here does too.
 *
 * To change a message: add the field here and in its type, raise `version`, and write the step in upcast/.
 */
import type { Sampling, Task } from './facts'
import type { FieldsOf, ShapeOf } from './shape'
import type { Message, MessageType } from './topics'

type MessageOf<T extends MessageType> = Extract<Message, { readonly type: T }>

export type Shapes = {
  readonly [T in MessageType]: { readonly version: number; readonly fields: ShapeOf<MessageOf<T>> }
}

const sampling = {
  temperature: 'number',
  topP: 'number',
  topK: 'int',
  minP: 'number',
  stopTokens: { each: 'int' },
} as const satisfies FieldsOf<Sampling>

const task = {
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

const segments = {
  each: { fields: { policyVersion: 'int', start: 'int', end: 'int' } },
} as const

const metrics = { map: 'number' } as const

const generate = {
  trajectory: 'string',
  turn: 'int',
  attempt: 'int',
  epoch: 'int',
  engine: { nullable: 'string' },
  seed: 'int',
  sampling: { fields: sampling },
  maxTokens: 'int',
  context: 'i32',
  resumedTokens: 'int',
  promptTokens: 'int',
  boundTokens: 'int',
  order: 'int',
  minVersion: 'int',
} as const

const execute = {
  trajectory: 'string',
  turn: 'int',
  call: 'int',
  attempt: 'int',
  epoch: 'int',
  tool: 'string',
  arguments: { map: 'unknown' },
  timeoutMs: 'number',
  responseChars: 'int',
  cells: { optional: { each: 'string' } },
} as const

export const shapes = {
  // trajectories
  'partition.claimed': { version: 1, fields: { at: 'number', partition: 'int', owner: 'string' } },
  'scheduler.claimed': { version: 1, fields: { at: 'number', partition: 'int', owner: 'string' } },
  'rollout.requested': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      group: 'string',
      member: 'int',
      groupSize: 'int',
      purpose: { oneOf: { train: true, eval: true, fork: true, chat: true } },
      step: 'int',
      order: 'int',
      task: { fields: task },
      tokens: 'i32',
      tools: { each: 'string' },
      limits: {
        fields: {
          contextTokens: 'int',
          responseTokens: 'int',
          turns: 'int',
          callsPerTurn: 'int',
          toolTimeoutMs: 'number',
          toolResponseChars: 'int',
        },
      },
      sampling: { fields: sampling },
      seed: 'int',
      minVersion: 'int',
      deadlineMs: 'number',
    },
  },
  'turn.asked': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      turn: 'int',
      attempt: 'int',
      epoch: 'int',
      engine: { nullable: 'string' },
      seed: 'int',
      sampling: { fields: sampling },
      maxTokens: 'int',
      contextTokens: 'int',
      contextDigest: 'string',
    },
  },
  'turn.completed': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      turn: 'int',
      attempt: 'int',
      engine: 'string',
      tokens: 'i32',
      logprobs: 'f32',
      text: 'string',
      finish: { oneOf: { stop: true, length: true } },
      segments,
      cachedTokens: 'int',
      preemptions: 'int',
      timing: { fields: { queuedAt: 'number', startedAt: 'number', firstTokenAt: 'number', endedAt: 'number' } },
    },
  },
  'turn.interrupted': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      turn: 'int',
      attempt: 'int',
      engine: 'string',
      tokens: 'i32',
      logprobs: 'f32',
      segments,
      reason: { oneOf: { aborted: true, 'engine-lost': true, 'engine-error': true, 'too-long': true } },
      error: 'string',
    },
  },
  'tool.asked': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      turn: 'int',
      call: 'int',
      attempt: 'int',
      epoch: 'int',
      tool: 'string',
      arguments: { map: 'unknown' },
    },
  },
  'tool.completed': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      turn: 'int',
      call: 'int',
      attempt: 'int',
      tool: 'string',
      status: { oneOf: { ok: true, error: true, timeout: true, malformed: true, 'unknown-tool': true } },
      text: 'string',
      stdout: 'string',
      stderr: 'string',
      exitCode: { nullable: 'int' },
      wallMs: 'number',
      cpuMs: 'number',
      executor: { nullable: 'string' },
    },
  },
  'context.appended': {
    version: 1,
    fields: { at: 'number', trajectory: 'string', turn: 'int', epoch: 'int', text: 'string', tokens: 'i32' },
  },
  'rollout.finished': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      epoch: 'int',
      outcome: { oneOf: { answered: true, truncated: true, failed: true } },
      reason: 'string',
      turns: 'int',
      sampledTokens: 'int',
      toolCalls: 'int',
      toolErrors: 'int',
      answerTags: 'int',
    },
  },
  'reward.assigned': {
    version: 1,
    fields: {
      at: 'number',
      trajectory: 'string',
      attempt: 'int',
      reward: 'number',
      answer: 'string',
      how: 'string',
      why: { optional: 'string' },
    },
  },
  'reward.failed': {
    version: 1,
    fields: { at: 'number', trajectory: 'string', attempt: 'int', how: 'string', why: 'string' },
  },
  'group.closed': {
    version: 1,
    fields: {
      at: 'number',
      group: 'string',
      epoch: 'int',
      reason: { oneOf: { complete: true, deadline: true } },
      rewarded: { each: 'int' },
    },
  },
  'group.selected': {
    version: 1,
    fields: {
      at: 'number',
      group: 'string',
      epoch: 'int',
      step: 'int',
      selection: 'string',
      generator: 'string',
      seed: 'int',
      whole: 'boolean',
      kept: { each: { fields: { member: 'int', reward: 'number', advantage: 'number', penalty: 'number' } } },
      dropped: { each: { fields: { member: 'int', reward: 'number', penalty: 'number' } } },
    },
  },
  'group.rejected': {
    version: 1,
    fields: {
      at: 'number',
      group: 'string',
      epoch: 'int',
      step: 'int',
      reason: { oneOf: { 'equal-rewards': true, 'too-few-rewarded': true } },
      rewarded: 'int',
      meanReward: 'number',
    },
  },

  // learner
  'learner.claimed': { version: 1, fields: { at: 'number', owner: 'string' } },
  'step.started': {
    version: 1,
    fields: {
      at: 'number',
      step: 'int',
      epoch: 'int',
      baseVersion: 'int',
      baseCheckpoint: 'string',
      trajectories: { each: 'string' },
    },
  },
  'step.completed': { version: 1, fields: { at: 'number', step: 'int', epoch: 'int', version: 'int', metrics } },
  'step.rejected': { version: 1, fields: { at: 'number', step: 'int', epoch: 'int', reason: 'string', metrics } },
  'weights.published': {
    version: 1,
    fields: {
      at: 'number',
      version: 'int',
      step: 'int',
      url: 'string',
      digest: 'string',
      bytes: 'int',
      epoch: { optional: 'int' },
    },
  },
  'checkpoint.saved': {
    version: 1,
    fields: { at: 'number', step: 'int', version: 'int', name: 'string', digest: 'string', epoch: { optional: 'int' } },
  },
  'stage.changed': {
    version: 1,
    fields: {
      at: 'number',
      stage: 'string',
      step: 'int',
      reason: 'string',
      index: { optional: 'int' },
      resetOptimizer: { optional: 'boolean' },
      updateReference: { optional: 'boolean' },
    },
  },

  // runs
  'run.started': {
    version: 1,
    fields: {
      at: 'number',
      run: 'string',
      recipe: { map: 'unknown' },
      recipeDigest: 'string',
      codeDigest: 'string',
      tokenizerDigest: 'string',
      seed: 'int',
      versions: { map: 'string' },
      partitions: { map: 'int' },
    },
  },
  'run.resumed': {
    version: 1,
    fields: { at: 'number', run: 'string', recipeDigest: 'string', codeDigest: 'string', tokenizerDigest: 'string' },
  },
  'run.finished': {
    version: 1,
    fields: {
      at: 'number',
      run: 'string',
      outcome: { oneOf: { done: true, stopped: true, failed: true } },
      reason: 'string',
      steps: 'int',
      summary: { map: 'unknown' },
    },
  },
  'engine.joined': {
    version: 1,
    fields: {
      at: 'number',
      engine: 'string',
      kind: 'string',
      model: 'string',
      kvTokens: 'int',
      blockTokens: 'int',
      maxSequences: 'int',
      contextTokens: 'int',
      prefixSharing: 'boolean',
      prioritySign: 'int',
    },
  },
  'engine.left': { version: 1, fields: { at: 'number', engine: 'string', reason: 'string' } },
  'weights.applied': { version: 1, fields: { at: 'number', engine: 'string', version: 'int', digest: 'string' } },
  'evaluation.completed': {
    version: 1,
    fields: {
      at: 'number',
      name: 'string',
      step: 'int',
      version: 'int',
      passAt1: 'number',
      standardError: 'number',
      n: 'int',
      samples: 'int',
      metrics,
    },
  },
  'curriculum.advanced': {
    version: 1,
    fields: {
      at: 'number',
      step: 'int',
      purpose: { oneOf: { train: true, eval: true, measure: true } },
      groups: { each: 'string' },
      cursor: 'int',
      order: 'int',
      begins: { optional: { each: 'int' } },
    },
  },
  'tasks.measured': {
    version: 1,
    fields: {
      at: 'number',
      stage: 'string',
      index: 'int',
      from: 'int',
      samples: 'int',
      solved: { each: 'int' },
    },
  },
  'step.tallied': { version: 1, fields: { at: 'number', step: 'int', metrics } },
  'trajectory.forked': {
    version: 1,
    fields: { at: 'number', parent: 'string', child: 'string', turn: 'int', parentRun: { optional: 'string' } },
  },
  'alarm.raised': { version: 1, fields: { at: 'number', alarm: 'string', message: 'string' } },

  // commands and telemetry
  'turn.generate': { version: 1, fields: generate },
  'trajectory.release': { version: 1, fields: { trajectory: 'string' } },
  'turn.assign': {
    version: 1,
    fields: {
      engine: 'string',
      ask: { fields: { type: { oneOf: { 'turn.generate': true } }, ...generate } },
    },
  },
  'trajectory.evict': { version: 1, fields: { engine: 'string', trajectory: 'string' } },
  'tool.execute': { version: 1, fields: execute },
  'tool.cancel': { version: 1, fields: { trajectory: 'string' } },
  'tools.assign': {
    version: 1,
    fields: {
      executor: 'string',
      incarnation: 'string',
      calls: { each: { fields: { type: { oneOf: { 'tool.execute': true } }, ...execute } } },
    },
  },
  'executor.slots': {
    version: 1,
    fields: {
      executor: 'string',
      incarnation: 'string',
      slots: 'int',
      tools: { each: 'string' },
      held: { each: 'string' },
    },
  },
  'tools.ended': {
    version: 1,
    fields: { executor: 'string', incarnation: 'string', slots: 'int', calls: { each: 'string' } },
  },
  'answer.verify': {
    version: 1,
    fields: {
      trajectory: 'string',
      attempt: 'int',
      reward: 'string',
      truth: 'string',
      response: 'string',
      task: { optional: { fields: task } },
    },
  },
  'run.control': {
    version: 1,
    fields: { order: { oneOf: { pause: true, resume: true, drain: true, abort: true } }, reason: 'string' },
  },
  'engine.status': {
    version: 1,
    fields: {
      at: 'number',
      engine: 'string',
      version: 'int',
      kvTokens: 'int',
      referencedTokens: 'int',
      cachedTokens: 'int',
      running: 'int',
      waiting: 'int',
      generatedTokens: 'int',
      prefilledTokens: 'int',
      preemptions: 'int',
      busyMs: 'number',
      cpuMs: 'number',
      maxRssBytes: 'int',
    },
  },
  'sandbox.status': {
    version: 1,
    fields: {
      at: 'number',
      executor: 'string',
      level: 'string',
      running: 'int',
      queued: 'int',
      calls: 'int',
      failures: 'int',
    },
  },
} as const satisfies Shapes
