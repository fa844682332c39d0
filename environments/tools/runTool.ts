/** Runs a call of a tool that acts in an environment: `str_replace_editor`, `mcp`, or `bash` for every other name. */
import type { ToolOutcome } from '../../kernels'
import type { Environment } from '../drivers/driver'
import { runBash, type ToolUse } from './bash'
import { runEditor } from './editor'
import { runMcp } from './mcp'
import { editorTool, mcpTool } from './schemas'

export function runEnvironmentTool(
  environment: Environment,
  tool: string,
  args: Readonly<Record<string, unknown>>,
  use: ToolUse,
): Promise<ToolOutcome> {
  if (tool === editorTool.name) return runEditor(environment, args, use)
  if (tool === mcpTool.name) return runMcp(environment, args, use.servers ?? [], use)
  return runBash(environment, args.command, use)
}
