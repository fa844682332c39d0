/**
 * `troupe replay run --step --break EXPR`: steps through a replay fact by fact.
 *
 * in   facts as the replay folds them; lines from a terminal or a pipe
 * out  each stop, and the answers to commands
 * Invariant: when a pipe has ended, the replay continues without waiting and still prints every break, so it works in
 * scripts; the end of a terminal's input stops the replay. Printed facts are escaped.
 */
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { groupOf, memberOf } from '../../messages/ids'
import { factLine } from '../../replay/factLine'
import { placeText } from '../../replay/log/place'
import { type Condition, conditionOf, type Stop } from '../../replay/rerun/breakpoint'
import type { Stepped } from '../../replay/rerun/rerunPartition'
import { TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { divergenceLines } from './text/divergenceLines'
import { jsonText } from './text/jsonText'

interface StepOptions {
  /** true: stops at every fact, until the user continues. */
  readonly step: boolean
  readonly break?: string
  readonly json: boolean
  readonly input: Readable & { readonly isTTY?: boolean }
}

export interface Stepper {
  /** Handles one replayed fact. Resolves with false when the user quits or the terminal's input ends. */
  at(stepped: Stepped): Promise<boolean>
  /** Closes the prompt; prints a notice when the expression held for no fact. */
  end(): void
}

const help = `  Enter, n     go to the next fact
  c            continue to the next break, or to the end
  b EXPR       break at facts for which EXPR holds; b without EXPR removes the condition
  p [EXPR]     print the fact, or the value of EXPR for it, such as tokens.length
  s            print the state of the fact's trajectory after the fact
  q            stop the replay here`

const paint = painter(process.stdout)

/** Creates the stepper. @throws TroupeError replay.bad_expression, before anything is replayed */
export function stepper(options: StepOptions): Stepper {
  let condition = options.break === undefined ? undefined : conditionOf(options.break)
  let stepping = options.step
  let breaks = 0
  const isTerminal = options.input.isTTY === true
  const lines = linesOf(options.input, isTerminal)

  function show(stepped: Stepped, stop: Stop): void {
    const { entry, divergences, decides, agrees, counts } = stepped
    if (options.json) {
      const fact = entry.message
      const line = { type: 'stop', place: placeText(entry), counts, agrees, fact, decides, divergences }
      process.stdout.write(`${jsonText(line)}\n`)
      return
    }
    const out = [`${paint('dim', placeText(entry).padEnd(22))} ${factLine(entry.message)}`]
    if (!counts) out.push(paint('dim', '  changes nothing: stale, repeated, or about no trajectory'))
    if (agrees === true) out.push(paint('green', "  as today's code decides"))
    for (const one of divergences) out.push(...divergenceLines(one).map(line => `  ${line}`))
    for (const fact of decides) out.push(`  ${paint('cyan', 'decides')} ${factLine(fact)}`)
    if (condition?.holds(stop)) out[0] = `${paint('yellow', 'break')} ${out[0]}`
    process.stdout.write(`${out.join('\n')}\n`)
  }

  /** Asks for commands at a stop. Resolves with true to continue the replay. */
  async function ask(stepped: Stepped, stop: Stop): Promise<boolean> {
    for (;;) {
      const line = await lines.next()
      if (line === undefined) {
        stepping = false
        return !isTerminal
      }
      const [, word = '', rest = ''] = /^\s*(\S*)\s*(.*?)\s*$/.exec(line)!
      switch (word) {
        case '':
        case 'n':
          stepping = true
          return true
        case 'c':
          stepping = false
          return true
        case 'q':
          return false
        case 'b':
          attempt(() => {
            condition = rest === '' ? undefined : conditionOf(rest)
          })
          break
        case 'p':
          attempt(() => say(rest === '' ? stepped.entry.message : conditionOf(rest).value(stop)))
          break
        case 's':
          say(stateOf(stepped))
          break
        default:
          process.stderr.write(`${help}\n`)
      }
    }
  }

  return {
    async at(stepped) {
      const stop: Stop = {
        entry: stepped.entry,
        decides: stepped.decides.map(f => f.type),
        differs: stepped.divergences.length > 0,
      }
      const breaksHere = condition?.holds(stop) === true
      if (breaksHere) breaks++
      if (!stepping && !breaksHere) return true
      show(stepped, stop)
      return ask(stepped, stop)
    },
    end() {
      lines.close()
      if (condition !== undefined && breaks === 0)
        process.stderr.write(`${conditionText(condition)} held for no fact\n`)
    },
  }
}

const conditionText = ({ text }: Condition) => `'${escapeForTerminal(text)}'`

function say(value: unknown): void {
  process.stdout.write(`  ${jsonText(value)}\n`)
}

/** Runs a command of the prompt; prints its error and keeps the prompt open. */
function attempt(act: () => void): void {
  try {
    act()
  } catch (thrown) {
    if (!(thrown instanceof TroupeError)) throw thrown
    process.stderr.write(`  ${escapeForTerminal(thrown.message)}\n`)
  }
}

/** Returns the coordinator's state of the fact's trajectory, without its tokens. */
function stateOf({ entry, state }: Stepped): unknown {
  const { message } = entry
  if (state === null || !('trajectory' in message)) return null
  const group = state.coordinator.groups.get(groupOf(message.trajectory))
  const rollout = group?.members.get(memberOf(message.trajectory))
  if (rollout === undefined) return { group: group === undefined ? 'not open' : 'open', trajectory: 'not known' }
  const { phase, turn, attempt: last, open, faults, engine, contextTokens, partialTokens, sampledTokens } = rollout
  const { toolCalls, toolErrors, calls, ending, rewarded } = rollout
  const asked = calls.map(({ tool, attempt: of, response }) => ({ tool, attempt: of, answered: response !== null }))
  return {
    ...{ phase, turn, attempt: last, open, faults, engine, contextTokens, partialTokens, sampledTokens },
    ...{ toolCalls, toolErrors, calls: asked, ending, rewarded, epoch: state.coordinator.epoch },
  }
}

/** Reads input lines on demand. On a terminal a prompt on stderr asks for each line, since stdout is data. */
function linesOf(input: Readable, isTerminal: boolean) {
  const reader = createInterface({ input, terminal: isTerminal, ...(isTerminal ? { output: process.stderr } : {}) })
  const lines = reader[Symbol.asyncIterator]()
  reader.setPrompt('(n)ext (c)ontinue (b)reak (p)rint (s)tate (q)uit > ')
  // Ctrl-C closes the reader, as the end of the input does.
  reader.on('SIGINT', () => reader.close())
  return {
    async next(): Promise<string | undefined> {
      if (isTerminal) reader.prompt()
      const { value, done } = await lines.next()
      return done === true ? undefined : value
    },
    close: () => reader.close(),
  }
}
