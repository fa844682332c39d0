/**
 * Provides the JavaScript file that a worker thread loads. An installed package contains it compiled. A checkout has
 * only TypeScript, and each thread would need half a second to load the compiler; so the parent, which has the compiler
 * loaded, transpiles the file once.
 *
 * in   a private directory, the worker's name      out  path of a JavaScript file
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Workers by name, each with the files that it imports at run time. */
const SOURCES = {
  'freshProcess/worker': ['freshProcess/worker', 'freshProcess/killProcesses', 'waitStatus'],
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
