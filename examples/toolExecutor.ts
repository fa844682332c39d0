/**
 * Runs the tool executor on topics of your own: it reads calls from `acme.calls` and writes results to `acme.results`.
 */
import { pythonToolIn, toolExecutor, toolKey, toolPort } from 'troupe/actors'
import { epoch, executorId, groupId, trajectoryId } from 'troupe/messages'
import { openTroupe } from 'troupe/runtime'
import { openSandbox, pythonTool } from 'troupe/sandbox'

const programs = ['print(6 * 7)', 'sum(range(10))', '1 / 0']

async function main(): Promise<void> {
  const topics = { 'tool-calls': 'acme.calls', trajectories: 'acme.results' }
  const troupe = await openTroupe({ bus: 'memory:', run: 'tools', topics })
  const sandbox = await openSandbox({ lanes: 2 })
  const executor = await troupe.host({
    behaviour: toolExecutor(),
    feeds: [{ topic: 'tool-calls', from: 'latest' }],
    perform: toolPort(new Map([[pythonTool.name, pythonToolIn(sandbox)]]), executorId('acme'), troupe.fx),
    keyOf: toolKey,
  })
  await executor.live

  const place = { turn: 0, call: 0, attempt: 0, epoch: epoch(0) }
  for (const [member, code] of programs.entries()) {
    const call = { trajectory: trajectoryId(groupId('acme'), member), ...place }
    const asked = { tool: pythonTool.name, arguments: { code, input: '' }, timeoutMs: 10_000, responseChars: 500 }
    await troupe.journal.append([{ type: 'tool.execute', ...call, ...asked }])
  }
  let open = programs.length
  for await (const { message } of troupe.entries(['trajectories'])) {
    if (message.type !== 'tool.completed') continue
    console.log(`${message.trajectory} ${message.status}: ${JSON.stringify(message.text)}`)
    if (--open === 0) break
  }
  await troupe.close({ drainMs: 5000 })
  await sandbox.close()
}
main()
