/**
 * The tool `mcp`: calls a tool of one of the task's MCP servers, or lists its tools.
 *
 * in   a server's name, a tool's name and arguments        out  the outcome of the call
 * The server (transport stdio) runs in the environment, as the agent's user, one process for each call: what it keeps
 * between calls is in files, so a snapshot holds it. The shell script does not parse MCP: it starts the server, writes
 * prepared lines, and prints the line with the answer's id. It ends the server as MCP prescribes: it closes the
 * server's input, waits up to 2 s, then sends SIGTERM.
 */
import { z } from 'zod'
import { type ToolOutcome, toolOutcome } from '../../kernels'
import { systemEffects } from '../../runtime/effects'
import type { Environment } from '../drivers/driver'
import { isOffered } from '../tasks/requirements'
import type { McpServerToml } from '../tasks/taskToml'
import { execAs, mostCommandBytes, outcomeOf, type ToolUse } from './bash'

const mostBytes = 1024 * 1024

/**
 * Starts "$@" with its input and output on pipes; writes the handshake, waits for its answer, writes the request, prints
 * the answer and ends the server. $1, $2: ids of the two answers; $3: lines to write first; $4: lines to write after
 * the first answer. A server that has ended already must not end the script by SIGPIPE.
 */
const script = `
trap '' PIPE
d=$(mktemp -d) || exit 70
trap 'rm -rf "$d"' EXIT
mkfifo "$d/in" "$d/out" || exit 70
first=$1 second=$2 hello=$3 request=$4; shift 4
(trap - PIPE; exec "$@") < "$d/in" > "$d/out" 2> "$d/err" &
server=$!
exec 3> "$d/in" 4< "$d/out"
rm -f "$d/in" "$d/out"
printf '%s\\n' "$hello" >&3 2> /dev/null
found=
while IFS= read -r line <&4; do
  case $line in
    *"$first"*) printf '%s\\n' "$request" >&3 2> /dev/null;;
    *"$second"*) found=1; printf '%s\\n' "$line"; break;;
  esac
done
exec 3>&-
n=0
while kill -0 "$server" 2> /dev/null && [ $n -lt 20 ]; do sleep 0.1; n=$((n + 1)); done
kill "$server" 2> /dev/null
[ -n "$found" ] || { tail -c 2000 "$d/err" >&2; exit 71; }
`

/** Answer of a server to tools/list or tools/call; servers also write null for a field that they leave out. */
const answerSchema = z.object({
  id: z.unknown().optional(),
  error: z.object({ message: z.string().nullish() }).nullish(),
  result: z
    .object({
      isError: z.boolean().nullish(),
      content: z.array(z.object({ type: z.string(), text: z.string().nullish() })).nullish(),
      structuredContent: z.unknown().optional(),
      tools: z
        .array(z.object({ name: z.string(), description: z.string().nullish(), inputSchema: z.unknown().optional() }))
        .nullish(),
    })
    .nullish(),
})

export async function runMcp(
  environment: Environment,
  args: Readonly<Record<string, unknown>>,
  servers: readonly McpServerToml[],
  use: ToolUse,
): Promise<ToolOutcome> {
  const offered = servers.filter(isOffered)
  const server = offered.find(({ name }) => name === args.server)
  if (server === undefined) {
    const names = offered.map(({ name }) => name).join(', ')
    return refused(names === '' ? 'the task has no MCP server' : `server must be one of: ${names}`)
  }
  const { tool, arguments: given = {} } = args
  if (tool !== undefined && typeof tool !== 'string') return refused('tool must be a string')
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return refused('arguments must be an object')
  const key = systemEffects.unique()
  const [first, second] = [`hello-${key}`, `call-${key}`]
  const rpc = (message: object) => JSON.stringify({ jsonrpc: '2.0', ...message })
  const clientInfo = { name: 'troupe', version: '1' }
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
  const hello = rpc({ id: first, method: 'initialize', params })
  const request = [
    rpc({ method: 'notifications/initialized' }),
    tool === undefined
      ? rpc({ id: second, method: 'tools/list' })
      : rpc({ id: second, method: 'tools/call', params: { name: tool, arguments: given } }),
  ].join('\n')
  const bytes = Buffer.byteLength(request)
  if (bytes > mostCommandBytes)
    return refused(`the arguments have ${bytes} bytes as an MCP request; at most ${mostCommandBytes}`)
  const command = ['sh', '-c', script, 'sh', first, second, hello, request, server.command!, ...server.args]
  const ended = await execAs(environment, command, use, { maxOutputBytes: mostBytes })
  if (ended.exitCode === 71)
    return toolOutcome({
      ...{ status: 'error', reason: `the MCP server ${server.name} ended without an answer`, wallMs: ended.wallMs },
      stderr: ended.stderr.toString(),
    })
  if (ended.status !== 'ok') return outcomeOf(ended, use.timeoutMs)
  return answered(ended.stdout.toString(), second, ended.wallMs)
}

function answered(line: string, id: string, wallMs: number): ToolOutcome {
  const failed = (reason: string, stderr = '') => toolOutcome({ status: 'error', reason, stderr, wallMs })
  let answer: unknown
  try {
    answer = JSON.parse(line)
  } catch {
    return failed(`the MCP server's answer is not JSON, or has more than ${mostBytes} bytes`)
  }
  const parsed = answerSchema.safeParse(answer)
  if (!parsed.success) return failed('the MCP server gave an answer that is not of the form that MCP prescribes')
  const { error, result } = parsed.data
  if (error) return failed(error.message ?? 'the MCP server reports an error')
  if (parsed.data.id !== id || !result) return failed('the MCP server gave no result')
  const { isError, structuredContent } = result
  const parts = (result.content ?? []).map(({ type, text }) => (type === 'text' ? (text ?? '') : `[${type}]`))
  const listed = result.tools?.map(
    one => `${one.name}: ${one.description ?? ''}\n  ${JSON.stringify(one.inputSchema ?? {})}`,
  )
  const structured = parts.length === 0 && structuredContent != null ? [JSON.stringify(structuredContent)] : []
  const text = [...(listed ?? parts), ...structured].join('\n')
  if (isError === true) return failed('the tool failed', text)
  return toolOutcome({ status: 'ok', exitCode: 0, stdout: text, wallMs })
}

const refused = (reason: string) => toolOutcome({ status: 'rejected', reason })
