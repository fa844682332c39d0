/**
 * The file that worker threads load. A package has it compiled; a checkout's is TypeScript, which a thread cannot load
 * without half a second of compiler start-up each. So the parent, which has the compiler loaded, transpiles it once.
 *
 * in   a private directory      out  the path of a JavaScript file
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The workers, each with what it imports at run time. */
const SOURCES = {
  'freshProcess/worker': ['freshProcess/worker', 'freshProcess/processes', 'waitStatus'],
  'zygote/worker': ['zygote/worker'],
} as const

export function workerFile(directory: string, worker: keyof typeof SOURCES): string {
  if (__filename.endsWith('.js')) return join(__dirname, `${worker}.js`)
  const { ModuleKind, ScriptTarget, transpileModule } = require('typescript') as typeof import('typescript')
  const compilerOptions = { module: ModuleKind.CommonJS, target: ScriptTarget.ES2022, esModuleInterop: true }
  for (const name of SOURCES[worker]) {
    const source = readFileSync(join(__dirname, `${name}.ts`), 'utf8')
    const target = join(directory, `${name}.js`)
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, transpileModule(source, { compilerOptions }).outputText)
  }
  return join(directory, `${worker}.js`)
}
