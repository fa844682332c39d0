/**
 * Records sessions of a gateway in run `r` of a bus, for the commands that read a captured run afterwards.
 *
 * in   the bus, the model's texts in the order of calls, what a client does        out  what the engine sampled
 */
import type { RunStarted } from '../../../messages/facts'
import { runId } from '../../../messages/ids'
import { openTroupe } from '../../../runtime/embed'
import { openRun } from '../../../runtime/openRun'
import { quickstartHistory } from '../histories'
import { openTestGateway, type TestGateway } from './openTestGateway'
import type { Sampled } from './scriptedEngine'

const add = { type: 'function', function: { name: 'add', parameters: { type: 'object', properties: {} } } }

export interface RecordingClient extends Pick<TestGateway, 'post'> {
  /** Calls the chat API with the tool `add`, in the session of `key`; returns the answer's message. */
  say(key: string, messages: readonly object[], label?: string): Promise<{ readonly tool_calls: { id: string }[] }>
}

export async function recordGateway(
  bus: string,
  written: readonly string[],
  act: (client: RecordingClient) => Promise<void>,
): Promise<readonly Sampled[]> {
  const context = await openRun(bus, 'r', 'write')
  const over = await openTroupe({ bus: context.bus, blobs: context.blobs, run: 'r' })
  const { engine, post, close } = await openTestGateway((_context, turn) => written[turn]!, { over })
  const started = quickstartHistory()
    .records.map(({ message }) => message)
    .find(m => m.type === 'run.started')
  await over.journal.append([{ ...(started as RunStarted), run: runId('r') }])
  const say: RecordingClient['say'] = async (key, messages, label = 'main') => {
    const headers = { authorization: `Bearer ${key}`, 'x-troupe-label': label }
    const response = await post('/v1/chat/completions', { model: 'm', messages, tools: [add] }, headers)
    return ((await response.json()) as { choices: { message: { tool_calls: { id: string }[] } }[] }).choices[0]!.message
  }
  await act({ post, say })
  await close()
  await over.close()
  await context.bus.close()
  return engine.sampled
}
