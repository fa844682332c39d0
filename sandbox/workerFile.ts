/**
 * The file that worker threads load. A package has it compiled; a checkout's is TypeScript, which a thread cannot load
 * without half a second of compiler start-up each. So the parent, which has the compiler loaded, transpiles it once.
 *
 * in   a private directory      out  the path of a JavaScript file
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The workers, each with what it imports at run time. */
const SOURCES = { worker: ['worker', 'processes'], zygoteWorker: ['zygoteWorker'] } as const

export function workerFile(directory: string, worker: keyof typeof SOURCES): string {
  if (__filename.endsWith('.js')) return join(__dirname, `${worker}.js`)
  const { ModuleKind, ScriptTarget, transpileModule } = require('typescript') as typeof import('typescript')
  const compilerOptions = { module: ModuleKind.CommonJS, target: ScriptTarget.ES2022, esModuleInterop: true }
  for (const name of SOURCES[worker]) {
    const source = readFileSync(join(__dirname, `${name}.ts`), 'utf8')
    writeFileSync(join(directory, `${name}.js`), transpileModule(source, { compilerOptions }).outputText)
  }
  return join(directory, `${worker}.js`)
}
