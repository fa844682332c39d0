/**
 * Renders the longest and shortest prompts, and the shortest conversations of the cold start, with the run's chat
 * template and tokenizer, and compares their tokens with the limits of the context.
 *
 * in   a recipe, tasks, conversations, the tools' schemas        out  the faults; what was measured
 * A model with random weights has no tokenizer before the run: its prompts are estimated from their characters, and one
 * that is too long is then only a warning. Invariant: one Python process, without torch; the rendered text is the same
 * as in a run.
 */
import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import type { RecipeConfig } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage, Task } from '../../messages/facts'
import { pythonEnvironment, pythonPath } from '../../runtime/python'
import { error, type Fault, warning } from './fault'

const measureMs = 10_000
/** Number of longest and of shortest prompts of each split, and of shortest conversations, that are rendered. */
const ofEachEnd = 8
/** Assumed number of characters per token, used if the tokenizer does not exist yet. */
const charsPerToken = 3

type Conversation = readonly ChatMessage[]

interface Measured {
  readonly faults: readonly Fault[]
  readonly said: string
}

export async function promptFaults(
  config: RecipeConfig,
  { train, evaluation }: { readonly train: readonly Task[]; readonly evaluation: readonly Task[] },
  schemas: readonly ToolSchema[],
  conversations: readonly Conversation[] = [],
): Promise<Measured> {
  const { model, limits, tools } = config
  const shortest = conversations.toSorted((a, b) => charsOf(a) - charsOf(b)).slice(0, ofEachEnd)
  const chosen = [...ends(train), ...ends(evaluation)]
  const asked = {
    model: model.from === 'directory' ? resolve(model.path) : null,
    template: model.template === undefined ? null : resolve(model.template),
    tools: tools.inPrompt ? schemas : [],
    prompts: chosen.map(({ messages }) => messages),
    conversations: shortest,
  }
  const said = await measure(asked)
  const place = model.template === undefined ? 'model.path' : 'model.template'
  // A busy machine says nothing about the recipe, and a run renders every prompt anyway.
  if (said.isLate) {
    const what = `the lengths of prompts were not checked: Python did not answer within ${measureMs / 1000} s`
    return { faults: [warning(place, what, 'check again when the machine is less busy')], said: 'no prompts' }
  }
  if (said.fault !== undefined) {
    return {
      faults: [
        error(
          'codec.render',
          place,
          said.fault,
          'correct the chat template, or give another one: --set model.template=FILE; if Python gave no answer, see `npx troupe doctor`',
        ),
      ],
      said: 'no prompts',
    }
  }
  const isExact = said.tokens !== undefined
  const measured = said.tokens ?? (said.characters ?? []).map(chars => Math.ceil(chars / charsPerToken))
  const tokens = measured.slice(0, chosen.length)
  const least = Math.min(...measured.slice(chosen.length))
  const trained = tokens.slice(0, ends(train).length)
  const evaluated = tokens.slice(trained.length)
  const about = isExact ? '' : 'about '
  const cureBy = (raised: string) =>
    `raise ${raised}, or shorten what precedes every problem: tools.inPrompt, data.system, data.prefix`
  const faults: Fault[] = []
  const bound = (own: number, promptTokens: number | undefined) => Math.min(promptTokens ?? own, own - 1)
  const allowed = bound(limits.contextTokens, limits.promptTokens)
  const long = trained.filter(n => n > allowed)
  const field = limits.promptTokens === undefined ? 'limits.contextTokens' : 'limits.promptTokens'
  const cure = cureBy(limits.promptTokens === undefined ? field : `${field} (below limits.contextTokens)`)
  if (trained.length > 0 && long.length === trained.length) {
    const what = `no prompt fits: the shortest has ${about}${Math.min(...trained)} tokens, at most ${allowed} are allowed`
    faults.push(isExact ? error('config.prompt_too_long', field, what, cure) : warning(field, what, cure))
  } else if (long.length > 0)
    faults.push(
      warning(
        field,
        `prompts of up to ${about}${Math.max(...long)} tokens do not fit the ${allowed} that are allowed; training skips their tasks`,
        cure,
      ),
    )
  const ownContext = config.evaluation.limits?.contextTokens
  const context = ownContext ?? limits.contextTokens
  if (evaluated.some(n => n >= context))
    faults.push(
      warning(
        'evaluation',
        `a prompt of ${about}${Math.max(...evaluated)} tokens leaves no room in a context of ${context}; it counts as not solved`,
        cureBy(ownContext === undefined ? 'limits.contextTokens' : 'evaluation.limits.contextTokens'),
      ),
    )
  if (shortest.length > 0 && least > limits.contextTokens) {
    const what = `no conversation of the cold start fits: the shortest has ${about}${least} tokens, the context ${limits.contextTokens}`
    const [place, raise] = ['limits.contextTokens', cureBy('limits.contextTokens')]
    faults.push(isExact ? error('config.no_data', place, what, raise) : warning(place, what, raise))
  }
  const range =
    tokens.length === 0
      ? 'no prompts'
      : `prompts of ${about}${spanOf(tokens)} tokens in a context of ${limits.contextTokens}`
  return {
    faults,
    said: isExact || tokens.length === 0 ? range : `${range} (estimated: the tokenizer is made when the run begins)`,
  }
}

/** Returns the `ofEachEnd` tasks with the shortest texts and as many with the longest; all if there are not more. */
function ends(tasks: readonly Task[]): readonly Task[] {
  const sorted = tasks.toSorted((a, b) => charsOf(a.messages) - charsOf(b.messages))
  return sorted.length <= 2 * ofEachEnd ? sorted : [...sorted.slice(0, ofEachEnd), ...sorted.slice(-ofEachEnd)]
}

const charsOf = (messages: Conversation): number => messages.reduce((sum, { content }) => sum + content.length, 0)

/** Formats the smallest and the largest number as `24 to 45`; as `24` if they are equal. */
function spanOf(tokens: readonly number[]): string {
  const [least, most] = [Math.min(...tokens), Math.max(...tokens)]
  return least === most ? String(least) : `${least} to ${most}`
}

interface Answer {
  readonly fault?: string
  /** True if there is no answer within `measureMs`. */
  readonly isLate?: boolean
  readonly tokens?: readonly number[]
  readonly characters?: readonly number[]
}

async function measure(asked: object): Promise<Answer> {
  const child = spawn(pythonPath(), ['-m', 'troupe_policy.render.measure'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: measureMs,
    env: pythonEnvironment(),
  })
  child.on('error', () => {}) // its output is empty, which is reported below
  child.stdin.on('error', () => {})
  child.stdin.end(JSON.stringify(asked))
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
  if (out === '' && child.killed) return { isLate: true }
  if (out === '')
    return { fault: `the prompt could not be rendered: ${err.trim().split('\n').at(-1) || 'Python did not start'}` }
  return JSON.parse(out)
}
