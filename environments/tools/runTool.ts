/** Runs a call of a tool that acts in an environment: `str_replace_editor`, or `bash` for every other name. */
import type { ToolOutcome } from '../../kernels'
import type { Environment } from '../drivers/driver'
import { runBash, type ToolUse } from './bash'
import { runEditor } from './editor'
import { editorTool } from './schemas'

export const runEnvironmentTool = (
  environment: Environment,
  tool: string,
  args: Readonly<Record<string, unknown>>,
  use: ToolUse,
): Promise<ToolOutcome> =>
  tool === editorTool.name ? runEditor(environment, args, use) : runBash(environment, args.command, use)
