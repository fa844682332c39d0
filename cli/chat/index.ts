/**
 * `troupe chat`: lets a person talk with a model that may call tools, at a terminal or with one prompt.
 *
 * stdout: the model's text, its calls and their results, as JSON lines with --json; stderr: the rest. Every exchange is
 * a trajectory of purpose `chat` on the bus: `troupe replay show chat.0000/0 --run ID` prints the first. One budget,
 * --max-tokens, covers an answer's tokens and its tool results.
 */

import { text as textOfStream } from 'node:stream/consumers'
import type { Command } from 'commander'
import { recordRunStart } from '../../actors/run/runStart'
import type { RecipeConfig } from '../../config'
import type { ChatMessage, RolloutRequested } from '../../messages/facts'
import { epoch, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'
import { collectedVersions } from '../../runtime/collectedVersions'
import { deriveSeed, systemEffects } from '../../runtime/effects'
import { createLog } from '../../runtime/log'
import { openRun } from '../../runtime/openRun'
import { placeOptions, withBus } from '../options/busOptions'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { timestamp } from '../train/runName'
import { refuseTaken } from '../train/startedRun'
import { type Exchanged, exchange } from './exchange'
import { type ChatModelOptions, chatConfig, chatDefaults, wrong } from './model'
import { startParts, type ToolChoice } from './parts'
import { summarise } from './summary'
import { answering, talking } from './talk'
import { chatView } from './view'

interface ChatOptions extends ToolChoice, ChatModelOptions {
  readonly bus: string
  readonly prompt?: string
  readonly system?: string
  readonly run?: string
  readonly json?: boolean
}

const fx = systemEffects
/**
 * Names an option's default in its help text only: a default set on the option itself would count as the user's choice.
 */
const usually = (name: keyof typeof chatDefaults) => `(default: ${chatDefaults[name]})`

export function registerChat(program: Command): void {
  const command = program
    .command('chat')
    .description('talk with a model that may call tools')
    .option('--model <dir>', 'directory of a model that transformers can load')
    .option('--engine <address>', 'engine that answers: local, vllm:URL, sglang:URL or openai:URL')
    .option(
      '--prompt <text>',
      'one message; without it, messages come from the terminal, or all of stdin is one message',
    )
    .option('--system <text>', 'system message of the chat')
    .option(
      '--max-tokens <n>',
      `upper bound on the tokens of an answer, tool results included ${usually('maxTokens')}`,
      wholeNumber(1, 2 ** 24),
    )
    .option(
      '--turns <n>',
      `upper bound on the turns (generations) of an answer ${usually('turns')}`,
      wholeNumber(1, 10_000),
    )
    .option(
      '--calls <n>',
      `upper bound on the tool calls of a turn; they run in parallel ${usually('callsPerTurn')}`,
      wholeNumber(1, 64),
    )
    .option(
      '--temperature <t>',
      `sampling temperature; 0 takes the most probable token ${usually('temperature')}`,
      numberFrom(0),
    )
    .option('--seed <n>', `seed of the sampling ${usually('seed')}`, wholeNumber(0, 2 ** 31 - 1))
    .option('--template <name>', "chat template: hermes, own (the model's), or a Jinja file", 'hermes')
    .option('--no-tools', 'show the model no tools')
    .option('--tools-from <file>', 'recipe file (.ts, .js) whose tools the model may call, instead of Python')
    .option(
      '--set <path=value>',
      'override a field of the recipe, e.g. tools.mcp.NAME={command: …} (repeatable)',
      repeatable,
      [],
    )
    .option('--json', 'print a JSON line for each piece of text, turn, call and result, last a summary')
    .option('--run <id>', 'name of the run (default: chat and time)')
  withBus(command).action(async ({ calls, ...given }: ChatOptions & { calls?: number }) => {
    process.exitCode = await chat({ ...given, ...(calls === undefined ? {} : { callsPerTurn: calls }) })
  })
}

async function chat(options: ChatOptions): Promise<number> {
  const config = await chatConfig(options)
  const interactive = options.prompt === undefined && process.stdin.isTTY === true
  const one = interactive ? undefined : (options.prompt ?? (await textOfStream(process.stdin))).trim()
  if (one === '') throw wrong('the message is empty', 'give --prompt TEXT, or write it to standard input')
  const run = options.run ?? `chat-${timestamp()}`
  const log = createLog('chat', { level: process.env.TROUPE_LOG ?? 'warn' })
  const closers: (() => Promise<unknown>)[] = []
  try {
    const context = await openRun(options.bus, run, 'write')
    closers.push(() => context.bus.close())
    const { journal } = context
    await refuseTaken(context)
    await journal.create(1)
    const parts = await startParts(config, options, log, closers)
    const { renderer } = parts
    const { digest: tokenizerDigest, stopTokens } = await renderer.describe()
    const versions = collectedVersions()
    await recordRunStart(journal, {
      ...{
        run: context.run,
        config,
        resume: false,
        acceptCode: false,
        versions,
        partitions: 1,
        tokenizerDigest,
        fx,
        log,
      },
    })
    const { offset } = await journal.appendTo(0, { type: 'partition.claimed', at: fx.now(), partition: 0, owner: run })
    const view = chatView(options.json === true)
    const talk: Talk = { messages: options.system ? [{ role: 'system', content: options.system }] : [], count: 0 }

    const answer = async (text: string, signal: AbortSignal): Promise<Exchanged> => {
      const said: ChatMessage = { role: 'user', content: text }
      const { schemas } = parts.tools
      const { tokens } = await renderer.prompt([...talk.messages, said], config.tools.inPrompt ? schemas : [])
      refuseTooLong(tokens.length, config.limits.contextTokens)
      talk.messages.push(said)
      const request = requestOf(
        talk,
        config,
        tokens,
        schemas.map(s => s.name),
        stopTokens,
      )
      const { engine, tools } = parts
      const exchanging = { journal, engine, renderer, tools: tools.tools, fx, view, conversation: talk.messages }
      const done = await exchange(request, epoch(offset), exchanging, signal)
      summarise(done, request, run, options.json === true)
      return done
    }

    const code = one === undefined ? await talking(answer) : await answering(one, answer)
    const ended = { outcome: 'done' as const, reason: 'the chat has ended', steps: 0, summary: {} }
    await journal.append([{ type: 'run.finished', at: fx.now(), run: context.run, ...ended }])
    if (options.json !== true)
      process.stderr.write(`look at it  npx troupe replay show chat.0000/0 --run ${run}${placeOptions(options)}\n`)
    return code
  } finally {
    for (const close of closers.reverse())
      await close().catch(thrown => log.warn({ err: thrown }, 'not closed cleanly'))
  }
}

interface Talk {
  readonly messages: ChatMessage[]
  count: number
}

function requestOf(
  talk: Talk,
  config: RecipeConfig,
  tokens: Int32Array,
  tools: readonly string[],
  stopTokens: readonly number[],
): RolloutRequested {
  const group = groupId(`chat.${String(talk.count).padStart(4, '0')}`)
  const { contextTokens, responseTokens, turns, callsPerTurn, toolTimeoutMs, toolResponseChars } = config.limits
  return {
    ...{ type: 'rollout.requested', at: fx.now(), trajectory: trajectoryId(group, 0), group, member: 0, groupSize: 1 },
    ...{ purpose: 'chat', step: 0, order: talk.count++, tokens, tools, seed: deriveSeed(config.seed, group) },
    task: { id: taskId(`chat/${talk.count - 1}`), messages: [...talk.messages], truth: '', reward: '' },
    limits: { contextTokens, responseTokens, turns, callsPerTurn, toolTimeoutMs, toolResponseChars },
    sampling: { ...config.rollout.sampling, temperature: config.evaluation.temperature, stopTokens },
    ...{ minVersion: policyVersion(0), deadlineMs: config.rollout.deadlineMs },
  }
}

function refuseTooLong(tokens: number, contextTokens: number): void {
  if (tokens < contextTokens) return
  throw wrong(
    `the conversation has ${tokens} tokens, but the model's context holds ${contextTokens} (limits.contextTokens), the answer included`,
    'raise it with --set limits.contextTokens=N, up to what the model allows, or write shorter messages',
  )
}
