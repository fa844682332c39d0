/**
 * Connects to a server of the Model Context Protocol (MCP) with the official SDK, and makes tools of its tools.
 *
 * in   how to start the server, or its address        out  schemas; how calls ended
 * Invariant: a server that dies, or does not answer in time, fails only the calls that were running on it, each with
 * its reason; after a death the next call starts the server again. After a late or lost answer the server is pinged; if
 * the ping has no answer, the connection is closed: over HTTP nothing else tells that the server went away or has
 * forgotten the session. A server that ends while it starts is started up to three times.
 */
import type { Readable } from 'node:stream'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js'
import type { McpServerConfig } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import { toolOutcome } from '../../kernels'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { knowAddress, knowVariables } from '../../runtime/secrets/credentials'
import { longSecret, redactSecrets } from '../../runtime/secrets/knownSecrets'
import { outputTail } from '../../runtime/secrets/outputTail'
import { resolveSecret, type SecretRef } from '../../runtime/secrets/secretReference'
import { mostTries } from '../../sandbox/retryKilled'
import type { Tool } from './toolPort'

export interface McpServer {
  readonly schemas: readonly ToolSchema[]
  tool(name: string): Tool
  close(): Promise<void>
}

const pingMs = 2000
const stderrChars = 500
/** Upper bound on the length of a result, in characters; a longer one is truncated. */
const resultChars = 256 * 1024
const maxPages = 100

interface Connection {
  readonly client: Client
  /** Resolves with the reason once the connection has ended. */
  readonly ended: Promise<string>
  isOver: boolean
}

/**
 * Connects to the server and reads the schemas of its tools (of those in `config.tools`, if it is set). @throws
 * TroupeError config.mcp_failed if that fails, or if the server lacks a tool in `config.tools`
 */
export async function openMcpServer(
  name: string,
  config: McpServerConfig,
  log?: Pick<Log, 'warn'>,
): Promise<McpServer> {
  let current: Promise<Connection> | undefined
  let isClosed = false
  const looking = new Set<Promise<void>>()

  const connected = (): Promise<Connection> => {
    current ??= connect(config).then(connection => {
      void connection.ended.then(why => {
        if (isClosed) return
        log?.warn({ server: name, why }, 'an MCP server ended; it is started again for the next call')
        current = undefined
      })
      return connection
    })
    const tried = current
    // A failed start is forgotten, so that the next call tries to start the server again.
    tried.catch(() => {
      if (current === tried) current = undefined
    })
    return tried
  }

  const endUnlessAlive = (connection: Connection): Promise<void> => {
    const look = connection.client
      .ping({ timeout: pingMs })
      .then(
        () => {},
        () => connection.client.close().catch(() => {}),
      )
      .finally(() => looking.delete(look))
    looking.add(look)
    return look
  }

  /**
   * Reads the schemas of the server's tools; starts the server again, up to `mostTries` times, if it ends meanwhile.
   */
  async function offered(): Promise<readonly ToolSchema[]> {
    for (let tries = 1; ; tries++) {
      const connection = await connected()
      try {
        return await toolsOf(connection.client, config)
      } catch (thrown) {
        if (connection.isOver && tries < mostTries) continue
        isClosed = true
        await connection.client.close().catch(() => {})
        throw thrown
      }
    }
  }

  const schemas = await offered().catch(thrown => {
    throw failed(name, asError(thrown))
  })

  return {
    schemas,
    tool:
      tool =>
      async (args, { timeoutMs, idempotencyKey }, signal) => {
        const begun = systemEffects.elapsed()
        const ended = (known: Parameters<typeof toolOutcome>[0]) =>
          toolOutcome({ timeoutMs, ...known, wallMs: systemEffects.elapsed() - begun })
        const late = AbortSignal.timeout(timeoutMs)
        let connection: Connection
        try {
          // Starting the server may take longer than the call's deadline: the call then ends, and the start continues.
          connection = await rejectOnAbort(connected(), AbortSignal.any([signal, late]))
        } catch (thrown) {
          signal.throwIfAborted()
          if (late.aborted) return ended({ status: 'timeout' })
          return ended({
            status: 'error',
            reason: `the server '${name}' cannot be started: ${asError(thrown).message}`,
          })
        }
        try {
          const meta = idempotencyKey === undefined ? {} : { _meta: { 'troupe/idempotencyKey': idempotencyKey } }
          const asked = { name: tool, arguments: args, ...meta }
          const left = Math.max(1, timeoutMs - (systemEffects.elapsed() - begun))
          const options = { timeout: left, maxTotalTimeout: left, signal }
          const result = await connection.client.callTool(asked, undefined, options)
          const isError = result.isError === true
          const hidden = isError ? {} : longSecret
          const text = redactSecrets(textOf(result as Result), hidden).slice(0, resultChars)
          return isError
            ? ended({ status: 'error', reason: 'the tool failed', stderr: text })
            : ended({ status: 'ok', exitCode: 0, stdout: text })
        } catch (thrown) {
          signal.throwIfAborted()
          const error = asError(thrown)
          if (error instanceof McpError && error.code === ErrorCode.RequestTimeout) {
            void endUnlessAlive(connection)
            return ended({ status: 'timeout' })
          }
          // The message of an McpError comes from the server, except for a broken connection: then the reason why the
          // connection ended says more.
          const isOwn = error instanceof McpError && error.code !== ErrorCode.ConnectionClosed
          if (!isOwn && !connection.isOver) await rejectOnAbort(endUnlessAlive(connection), signal)
          if (!connection.isOver) return ended({ status: 'error', reason: error.message })
          const why = error instanceof McpError ? '' : ` (${error.message})`
          const reason = `the server '${name}' ${await connection.ended}${why}; it is started again`
          return ended({ status: 'error', reason })
        }
      },
    async close() {
      isClosed = true
      await Promise.all(looking)
      await (await current?.catch(() => undefined))?.client.close().catch(() => {})
    },
  }
}

/** Connects to the server; tries up to `mostTries` times if it ends meanwhile, since something may have killed it. */
async function connect(config: McpServerConfig): Promise<Connection> {
  for (let tries = 1; ; tries++) {
    try {
      return await connectOnce(config)
    } catch (thrown) {
      const { cause } = asError(thrown)
      const hasEnded = cause instanceof McpError && cause.code === ErrorCode.ConnectionClosed
      if (!hasEnded || tries === mostTries) throw thrown
    }
  }
}

async function connectOnce(config: McpServerConfig): Promise<Connection> {
  const client = new Client({ name: 'troupe', version: '1' })
  let stderr = () => ''
  let transport: Transport
  if ('command' in config) {
    const { command, args, cwd } = config
    const env = { ...getDefaultEnvironment(), ...resolved(config.env) }
    const stdio = new StdioClientTransport({
      command,
      args,
      env,
      stderr: 'pipe',
      ...(cwd === undefined ? {} : { cwd }),
    })
    stderr = outputTail([stdio.stderr as Readable | null], { chars: stderrChars })
    transport = stdio
  } else {
    const requestInit = { headers: resolved(config.headers) }
    knowAddress(config.url)
    transport = new StreamableHTTPClientTransport(new URL(config.url), { requestInit }) as Transport
  }
  const connection: { client: Client; isOver: boolean; ended: Promise<string> } = {
    client,
    isOver: false,
    ended: new Promise(resolve => {
      client.onclose = () => {
        connection.isOver = true
        resolve(`ended${stderr() === '' ? '' : `; the end of its stderr: ${stderr().trim()}`}`)
      }
    }),
  }
  try {
    await client.connect(transport, { timeout: config.startTimeoutMs })
  } catch (thrown) {
    await client.close().catch(() => {})
    const said = stderr() === '' ? '' : `; the end of its stderr: ${stderr().trim()}`
    throw new Error(`${asError(thrown).message}${said}`, { cause: thrown })
  }
  return connection
}

async function toolsOf(client: Client, { tools: wanted }: McpServerConfig): Promise<readonly ToolSchema[]> {
  const found: ToolSchema[] = []
  let cursor: string | undefined
  for (let page = 0; page < maxPages; page++) {
    const { tools, nextCursor } = await client.listTools(cursor === undefined ? {} : { cursor })
    for (const { name, description = '', inputSchema } of tools) {
      found.push({ name, description, parameters: inputSchema as ToolSchema['parameters'] })
    }
    cursor = nextCursor
    if (cursor === undefined) break
  }
  const missing = wanted?.filter(name => !found.some(one => one.name === name)) ?? []
  if (missing.length > 0) {
    throw new Error(
      `the server offers no tool ${missing.join(', ')}; its tools: ${found.map(one => one.name).join(', ')}`,
    )
  }
  return wanted === undefined ? found : found.filter(({ name }) => wanted.includes(name))
}

/** Replaces secret references by their values. These, and values that look secret, are redacted in later texts. */
function resolved(values: Readonly<Record<string, string | SecretRef>>): Record<string, string> {
  const all = Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, typeof value === 'string' ? value : resolveSecret(value)]),
  )
  knowVariables(all)
  return all
}

interface Result {
  readonly content?: readonly {
    readonly type: string
    readonly text?: string
    readonly data?: string
    readonly mimeType?: string
  }[]
  readonly structuredContent?: unknown
}

/**
 * Returns the result as text: its text parts, and for each other part its kind and size. A result without parts is its
 * structured content as JSON.
 */
function textOf({ content = [], structuredContent }: Result): string {
  const parts = content.map(({ type, text, data, mimeType }) => {
    if (type === 'text') return text ?? ''
    return data === undefined ? `[${type}]` : `[${type} ${mimeType ?? ''}, ${data.length} characters of base64]`
  })
  if (parts.length > 0 || structuredContent === undefined) return parts.join('\n')
  return JSON.stringify(structuredContent)
}

const failed = (name: string, error: Error) =>
  new TroupeError('config.mcp_failed', {
    boundary: 'config',
    retriable: false,
    message: `the MCP server '${name}' cannot be used: ${error.message}`,
    hint: 'give tools.mcp.NAME {command, args} of a program that speaks MCP on stdin and stdout, or {url} of an HTTP server; list in its `tools` only tools that the server offers',
    cause: error,
  })
