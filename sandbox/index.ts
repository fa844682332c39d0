/** The sandbox's public surface (`troupe/sandbox`). It stands alone: no bus, no actors. */
export { SandboxError, type SandboxErrorCode } from './errors'
export { JUDGE_DEFAULTS, type Judge, type JudgeOptions, openJudge } from './judge/judgeServer'
export { DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_MEMORY_MB, DEFAULT_TIMEOUT_MS, MAX_CODE_BYTES } from './limits'
export { type LevelReport, openSandbox, probeLevels } from './open'
export type { SandboxOptions } from './options'
export { type PythonToolLimits, type PythonToolResult, pythonTool, runPythonTool } from './pythonTool'
export { type BatchOptions, runBatch } from './runBatch'
export type { RunRequest, RunResult, RunStatus, Sandbox, SandboxLevel } from './sandbox'
