/**
 * Rules of the Python house: which package may import which, no circles, reasons for late imports, bounds on folders and files.
 *
 * in   Python sources by path        out  violations, a line each
 * Invariant: imports inside functions and under TYPE_CHECKING count like any other, so a circle cannot be hidden.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

export type PythonSources = ReadonlyMap<string, string>

interface PythonImport {
  readonly target: string
  readonly line: number
  readonly late: boolean
  readonly reason: boolean
}

/** Folders that stand on sys.path when their modules run. */
export const pythonRoots = [
  'policy',
  'recipes/environment/python',
  'sandbox/zygote',
  'sandbox/freshProcess',
  'environments/keeper',
  'replay/tracking/wandb/python',
]

/** Files and folders, and what each may import besides itself. The longest matching path of a file is its house. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  'policy/troupe_policy/__init__.py': [],
  'policy/troupe_policy/generated': [],
  'policy/troupe_policy/child_process.py': [],
  'policy/troupe_policy/library_settings.py': [],
  // What it forks are modules that are asked for by name.
  'policy/troupe_policy/fork_server.py': [
    'policy/troupe_policy/child_process.py',
    'policy/troupe_policy/library_settings.py',
  ],
  'policy/troupe_policy/server_group.py': ['policy/troupe_policy/child_process.py'],
  'policy/troupe_policy/model': [],
  'policy/troupe_policy/engine': ['policy/troupe_policy/generated', 'policy/troupe_policy/model'],
  'policy/troupe_policy/functions': [],
  'policy/troupe_policy/render': ['policy/troupe_policy/generated', 'policy/troupe_policy/model'],
  'policy/troupe_policy/reward': ['policy/troupe_policy/child_process.py'],
  'policy/troupe_policy/trainer': [
    'policy/troupe_policy/generated',
    'policy/troupe_policy/child_process.py',
    'policy/troupe_policy/model',
    'policy/troupe_policy/trainer/losses',
    'policy/troupe_policy/trainer/batch',
    'policy/troupe_policy/trainer/ranks',
  ],
  'policy/troupe_policy/trainer/losses': [],
  'policy/troupe_policy/trainer/batch': [],
  'policy/troupe_policy/trainer/ranks': [],
  // starts every process, and nothing imports it
  'policy/troupe_policy/server.py': [
    'policy/troupe_policy/library_settings.py',
    'policy/troupe_policy/generated',
    'policy/troupe_policy/child_process.py',
    'policy/troupe_policy/model',
    'policy/troupe_policy/engine',
    'policy/troupe_policy/render',
    'policy/troupe_policy/trainer',
    'policy/troupe_policy/trainer/ranks',
  ],
  // run by hand and by benches; nothing of the product imports them
  'policy/measure': ['policy/troupe_policy/trainer', 'policy/troupe_policy/trainer/ranks'],
  'policy/smoke': [
    'policy/measure',
    'policy/troupe_policy/model',
    'policy/troupe_policy/engine',
    'policy/troupe_policy/trainer',
    'policy/troupe_policy/trainer/batch',
  ],
  'recipes/environment/python': ['policy/troupe_policy/child_process.py'],
  'sandbox/zygote': [],
  'sandbox/freshProcess': [],
  'environments/keeper': [],
  'replay/tracking/wandb/python': [],
}

const maxFiles = 25
const maxLines = 320

export function pythonViolations(sources: PythonSources): readonly string[] {
  const imports = pythonImports(sources)
  return [...floorFaults(imports), ...lateFaults(imports), ...circles(imports), ...sizeFaults(sources)]
}

/** @throws Error where python3 is missing or a source does not parse */
function pythonImports(sources: PythonSources): ReadonlyMap<string, readonly PythonImport[]> {
  const script = join(__dirname, '../support/pythonImports.py')
  const input = JSON.stringify({ files: Object.fromEntries(sources), roots: pythonRoots })
  const { status, stdout, stderr, error } = spawnSync('python3', [script], {
    input,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  })
  if (status !== 0) throw new Error(`pythonImports.py ended with ${status}: ${error?.message ?? stderr}`)
  return new Map(Object.entries(JSON.parse(stdout) as Record<string, readonly PythonImport[]>))
}

const houseOf = (file: string): string | undefined =>
  Object.keys(mayImport)
    .filter(house => file === house || file.startsWith(`${house}/`))
    .sort((a, b) => b.length - a.length)[0]

function floorFaults(imports: ReadonlyMap<string, readonly PythonImport[]>): readonly string[] {
  return [...imports].flatMap(([file, found]) => {
    const house = houseOf(file)
    if (house === undefined) return [`${file}: no rule in tests/layout/python.ts says what this file may import`]
    return found.flatMap(({ target, line }) => {
      const other = houseOf(target)
      return other === house || (other !== undefined && mayImport[house]!.includes(other))
        ? []
        : [`${file}:${line}: ${house} imports ${target}, which is not below it`]
    })
  })
}

function lateFaults(imports: ReadonlyMap<string, readonly PythonImport[]>): readonly string[] {
  return [...imports].flatMap(([file, found]) =>
    found
      .filter(({ late, reason }) => late && !reason)
      .map(
        ({ target, line }) => `${file}:${line}: imports ${target} inside a function without '# late: REASON' above it`,
      ),
  )
}

function circles(imports: ReadonlyMap<string, readonly PythonImport[]>): readonly string[] {
  const found: string[] = []
  const state = new Map<string, 'open' | 'done'>()
  const visit = (file: string, trail: readonly string[]) => {
    if (state.get(file) === 'done') return
    if (state.get(file) === 'open') {
      found.push(`a circle of imports: ${[...trail.slice(trail.indexOf(file)), file].join(' → ')}`)
      return
    }
    state.set(file, 'open')
    for (const { target } of imports.get(file) ?? []) visit(target, [...trail, file])
    state.set(file, 'done')
  }
  for (const file of imports.keys()) visit(file, [])
  return found
}

function sizeFaults(sources: PythonSources): readonly string[] {
  const counts = new Map<string, number>()
  for (const file of sources.keys()) {
    const folder = file.slice(0, file.lastIndexOf('/'))
    counts.set(folder, (counts.get(folder) ?? 0) + 1)
  }
  const crowded = [...counts]
    .filter(([, count]) => count > maxFiles)
    .map(([folder, count]) => `${folder} holds ${count} Python files, more than ${maxFiles}`)
  const long = [...sources]
    .map(([file, source]) => [file, source.split('\n').length - 1] as const)
    .filter(([, lines]) => lines > maxLines)
    .map(([file, lines]) => `${file} has ${lines} lines, more than ${maxLines}`)
  return [...crowded, ...long]
}
