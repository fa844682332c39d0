/**
 * Collects the versions of Troupe, Node, Python, torch and transformers, for the fact run.started. The packages'
 * metadata is read instead of importing them: importing torch takes seconds.
 */
import { execFileSync } from 'node:child_process'
import { version } from '../package.json'
import { retryKilledSync } from '../sandbox/retryKilled'
import { pythonPath } from './python'

export function collectedVersions(): Readonly<Record<string, string>> {
  const program =
    'import json, platform, importlib.metadata as m; ' +
    'print(json.dumps({"python": platform.python_version(), **{p: m.version(p) for p in ("torch", "transformers")}}))'
  const python = JSON.parse(
    retryKilledSync(() => execFileSync(pythonPath(), ['-c', program], { timeout: 30_000, encoding: 'utf8' })),
  ) as Record<string, string>
  return { troupe: version, node: process.version, ...python }
}
