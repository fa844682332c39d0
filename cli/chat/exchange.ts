/**
 * One exchange of a chat: the user's message, and the model's turns until it answers or a limit (tokens, turns) is
 * reached.
 *
 * in   a prompt, an engine, tools, a renderer
 * out  facts of one trajectory, appended as they happen; text, shown at once
 * Invariant: the coordinator's reducer (`evolveRollout`) decides the next action from the facts, so `replay` reads a
 * chat like a run. Within an exchange no text is rendered to tokens twice; tool results count against the answer's
 * token budget. However the exchange ends, the engine is asked to release its state; the conversation keeps the text
 * that the model had produced when it was aborted or the engine failed.
 */
import { nothingRan, outOfTokens, rolloutFinished, toolAsked, turnAsked } from '../../actors/rollouts/nextActions'
import { type Call, type Ending, evolveRollout, newRollout, type Rollout } from '../../actors/rollouts/rollout'
import { type Tool, toolPort } from '../../actors/tools/toolPort'
import { type Engine, type Generation, GenerationLost } from '../../backends/engines/engine'
import type { Renderer } from '../../backends/renderer/renderer'
import { tokenText } from '../../backends/renderer/tokenText'
import { callErrorText, truncateMiddle } from '../../kernels'
import type { ChatMessage, Fact, RolloutRequested, ToolCompleted } from '../../messages/facts'
import { type Epoch, executorId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'

const stopped: Ending = { outcome: 'truncated', reason: 'stopped' }

export interface ChatView {
  turn(): void
  /** Shows a piece of the model's text as it arrives. The text is not escaped yet. */
  text(text: string): void
  turnEnded(): void
  calling(call: { readonly tool: string; readonly arguments: Readonly<Record<string, unknown>> }): void
  called(fact: ToolCompleted): void
}

export interface ExchangeParts {
  readonly journal: Pick<Journal, 'append'>
  readonly engine: Engine
  readonly renderer: Pick<Renderer, 'toolResponses' | 'decode'>
  readonly tools: ReadonlyMap<string, Tool>
  readonly fx: Effects
  readonly view: ChatView
  /** Messages of the chat so far. The exchange appends the model's turns and the tool results, for the next prompt. */
  readonly conversation: ChatMessage[]
}

export interface Exchanged {
  readonly rollout: Rollout
  /**
   * Milliseconds from the engine's first token to the first shown text; one entry for each turn that the engine
   * answered with text.
   */
  readonly firstTokenLagsMs: readonly number[]
  /** Milliseconds from a tool call's end until its output is shown; one entry for each call that was not aborted. */
  readonly toolLagsMs: readonly number[]
}

/**
 * Runs one exchange to its end. Aborting `signal` (the user's wish) ends the answer; the tokens of the interrupted turn
 * are recorded. An error of the engine is recorded in the same way, and then thrown.
 */
export async function exchange(
  request: RolloutRequested,
  epoch: Epoch,
  parts: ExchangeParts,
  signal: AbortSignal,
): Promise<Exchanged> {
  const { journal, renderer, fx, view, conversation } = parts
  const runTool = toolPort(parts.tools, executorId('chat'), fx)
  const firstTokenLagsMs: number[] = []
  const toolLagsMs: number[] = []
  let rollout = newRollout(request)
  const say = async (fact: Fact) => {
    await journal.append([fact])
    rollout = evolveRollout(rollout, fact, epoch)
  }
  const wrote = (text: string) => {
    conversation.push({ role: 'assistant', content: text.replace(/<\|[^|<>\s]{1,40}\|>\s*$/, '') })
  }
  const wroteInPart = (text: string) => {
    const whole = text.replace(/\ufffd+$/, '') // drops the last character if the tokens end inside it
    if (whole.trim() !== '') wrote(whole)
  }
  await journal.append([request])

  async function turn(): Promise<void> {
    const next = turnAsked(rollout, epoch, fx)
    if (next === undefined) return finish(outOfTokens)
    await say(next.asked)
    const { trajectory, turn, attempt, context, maxTokens, sampling, seed } = next.generate
    const place = { trajectory, turn, attempt }
    view.turn()
    let shownAt: number | undefined
    let spoken = ''
    const text = tokenText(
      tokens => renderer.decode(tokens),
      piece => {
        shownAt ??= fx.now()
        spoken += piece
        view.text(piece)
      },
    )
    const ask = { requestId: `${trajectory}#${turn}#${attempt}`, trajectory, context, resumedTokens: 0 }
    const wanted = { ...ask, maxTokens, sampling, seed, priority: 0, keep: true }
    let isStreamed = false
    const onTokens = (tokens: Int32Array) => {
      isStreamed = true
      text.add(tokens)
    }
    const { engine } = parts
    let g: Generation
    try {
      g = await (engine.stream === undefined
        ? engine.generate(wanted, signal)
        : engine.stream(wanted, onTokens, signal))
    } catch (thrown) {
      const nothing = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
      const partial = thrown instanceof GenerationLost ? thrown.partial : nothing
      if (!isStreamed) text.add(partial.tokens)
      await text.end()
      view.turnEnded()
      const { message } = asError(thrown)
      const reason = signal.aborted ? 'aborted' : 'engine-error'
      await say({
        type: 'turn.interrupted',
        at: fx.now(),
        ...place,
        engine: engine.id,
        ...partial,
        reason,
        error: message,
      })
      wroteInPart(spoken)
      if (signal.aborted) return finish(stopped)
      await finish({ outcome: 'failed', reason: `engine: ${message}` })
      throw thrown
    }
    // Adds all tokens of an engine that does not stream, and a last token that arrives only with the end of the
    // generation.
    if (!isStreamed) text.add(g.tokens)
    await text.end()
    view.turnEnded()
    if (shownAt !== undefined) firstTokenLagsMs.push(Math.max(0, shownAt - g.timing.firstTokenAt))
    const { tokens, logprobs, segments } = g
    if (g.finish === 'aborted') {
      const common = { at: fx.now(), ...place, engine: engine.id, tokens, logprobs, segments }
      await say({ type: 'turn.interrupted', ...common, reason: 'aborted', error: '' })
      wroteInPart(g.text)
      return finish(stopped)
    }
    const { finish: how, cachedTokens, preemptions, timing } = g
    const answer = { tokens, logprobs, text: g.text, finish: how, segments, cachedTokens, preemptions, timing }
    await say({ type: 'turn.completed', at: fx.now(), ...place, engine: engine.id, ...answer })
    wrote(g.text)
  }

  async function call(one: Call, index: number): Promise<void> {
    let fact: ToolCompleted
    let endedAt = fx.now()
    const next = toolAsked(rollout, index, epoch, fx)
    if ('refused' in next) fact = next.refused
    else {
      await say(next.asked)
      view.calling(one)
      try {
        const decision = await runTool(next.execute, signal)
        fact = decision!.facts[0] as ToolCompleted
      } catch (thrown) {
        if (signal.aborted) return // an abort is handled once, when all calls of the turn have ended
        const { trajectory, turn, call, attempt, tool, responseChars } = next.execute
        const text = truncateMiddle(callErrorText(asError(thrown).message), responseChars)
        const place = { trajectory, turn, call, attempt, tool }
        fact = { type: 'tool.completed', at: fx.now(), ...place, status: 'error', text, ...nothingRan }
      }
      endedAt = fact.at
    }
    // The result is shown before it is written to the log, so that the user does not wait for the disk.
    view.called(fact)
    toolLagsMs.push(Math.max(0, fx.now() - endedAt))
    await say(fact)
  }

  async function finish(ending: Ending): Promise<void> {
    await say(rolloutFinished(rollout, ending, epoch, fx))
    // A chat gets no reward, so its group is closed here.
    const { group } = request
    await journal.append([{ type: 'group.closed', at: fx.now(), group, epoch, reason: 'complete', rewarded: [] }])
  }

  try {
    while (rollout.phase !== 'finished') {
      switch (rollout.phase) {
        case 'turn':
          await turn()
          break
        case 'tools':
          if (signal.aborted) {
            await finish(stopped)
            break
          }
          await Promise.all(rollout.calls.map((one, index) => call(one, index))).finally(() => {
            for (const { response } of rollout.calls)
              if (response !== null) conversation.push({ role: 'tool', content: response })
          })
          break
        case 'append': {
          const responses = rollout.calls.map(c => c.response ?? '')
          const { text, tokens } = await renderer.toolResponses(responses)
          const { trajectory } = request
          await say({ type: 'context.appended', at: fx.now(), trajectory, turn: rollout.turn, epoch, text, tokens })
          break
        }
        case 'ended':
          await finish(rollout.ending!)
      }
    }
  } finally {
    // A failed release is ignored: the engine has already reported why, or will report it at the next turn.
    await parts.engine.release(request.trajectory).catch(() => {})
  }
  return { rollout, firstTokenLagsMs, toolLagsMs }
}
