/**
 * An MCP server for tests, with tools that answer, fail, end the process, or answer late. With `MODE=deaf`, or if the
 * file that DEAF_WHILE names exists when the server starts, the server never answers. The first request for its tools
 * kills it if KILLED_WHILE_LISTING names a directory that does not exist yet; it then makes that directory.
 */
const { existsSync, mkdirSync } = require('node:fs')
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js')
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js')
const { z } = require('zod')

if (process.env.MODE === 'deaf' || existsSync(process.env.DEAF_WHILE ?? '')) setInterval(() => {}, 1000)
else serve()

function serve() {
  const server = new McpServer({ name: 'test', version: '1' })
  const text = value => ({ content: [{ type: 'text', text: String(value) }] })
  server.registerTool('pid', { description: 'its process', inputSchema: {} }, async () => text(process.pid))
  server.registerTool('key', { description: 'its idempotency key', inputSchema: {} }, async (_args, { _meta }) =>
    text(_meta?.['troupe/idempotencyKey']),
  )
  server.registerTool('twice', { description: 'doubles', inputSchema: { n: z.number() } }, async ({ n }) => text(2 * n))
  server.registerTool('fail', { description: 'fails', inputSchema: {} }, async () => {
    throw new Error('no such thing')
  })
  server.registerTool('die', { description: 'dies', inputSchema: {} }, async () => {
    process.stderr.write('out of luck\n')
    process.exit(3)
  })
  server.registerTool('slow', { description: 'late, but alive', inputSchema: { ms: z.number() } }, async ({ ms }) => {
    await new Promise(resolve => setTimeout(resolve, ms))
    return text('late')
  })
  server.registerTool('hang', { description: 'stands still', inputSchema: {} }, async () => {
    for (;;);
  })
  server.registerTool(
    'say',
    { description: 'says it', inputSchema: { said: z.string(), isError: z.boolean() } },
    async ({ said, isError }) => ({ ...text(said), isError }),
  )
  server.registerTool('picture', { description: 'no text', inputSchema: {} }, async () => ({
    content: [{ type: 'image', data: 'AAAA', mimeType: 'image/png' }],
  }))
  const transport = new StdioServerTransport()
  const mark = process.env.KILLED_WHILE_LISTING
  if (mark !== undefined && !existsSync(mark)) {
    const { stdin } = process
    stdin.on('data', data => {
      if (!String(data).includes('tools/list')) return
      mkdirSync(mark)
      process.kill(process.pid, 'SIGKILL')
    })
  }
  void server.connect(transport)
}
