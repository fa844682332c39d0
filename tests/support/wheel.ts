/** Wheels that pip installs without an index: written by hand, empty modules of version 1.0. */
import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { pythonPath } from '../../runtime/python'

const script = `
import sys, zipfile
path, name = sys.argv[1:]
with zipfile.ZipFile(path, 'w') as z:
    z.writestr(f'{name}.py', '')
    z.writestr(f'{name}-1.0.dist-info/METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n')
    z.writestr(f'{name}-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr(f'{name}-1.0.dist-info/RECORD', '')
`

/** Writes the wheel of a package into a folder. */
export function writeWheel(folder: string, name: string): void {
  mkdirSync(folder, { recursive: true })
  const { status, stderr } = spawnSync(pythonPath(), ['-c', script, join(folder, `${name}-1.0-py3-none-any.whl`), name])
  if (status !== 0) throw new Error(`the wheel of ${name} could not be written: ${stderr}`)
}

/** Environment of a pip that uses nothing of this machine or of a test beside this one: no configuration, no cache. */
export const alone = { PIP_CONFIG_FILE: '/dev/null', PIP_NO_CACHE_DIR: '1', PIP_DISABLE_PIP_VERSION_CHECK: '1' }
