/**
 * `troupe bench [NAMES]`: runs the named benchmarks, or all, one after the other, and prints each measured value beside
 * its budget. Exit code 1 when a value misses its budget or a benchmark fails. An installed package has no benchmarks.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { TroupeError } from '../runtime/errors'
import { reportError } from './io/reportError'

const folder = join(__dirname, '../bench')
type Bench = (options: { readonly only?: readonly string[] }) => Promise<import('../bench/report').BenchReport>

const notBenches = new Set(['report'])

export function registerBench(program: Command): void {
  program
    .command('bench [names...]')
    .description('run benchmarks (default: all)')
    .option('--json', 'print a JSON line for each benchmark')
    .option(
      '--only <parts>',
      'run only these parts of a benchmark, separated by commas (for benchmarks that have parts)',
      text => text.split(','),
    )
    .action(async (names: string[], options: { json?: boolean; only?: string[] }) => {
      const known = benches()
      for (const name of names) if (!known.includes(name)) throw noBench(name, known)
      const { printReport } = require(join(folder, 'report')) as typeof import('../bench/report')
      let code = 0
      const chosen = names.length === 0 ? known : names
      for (const name of chosen) {
        try {
          const { bench } = require(join(folder, name)) as { bench: Bench }
          const report = await bench(options.only ? { only: options.only } : {})
          code = Math.max(code, printReport(report, options.json === true))
        } catch (error) {
          if (chosen.length === 1) throw error
          // The remaining benchmarks still run.
          console.error(`benchmark ${name} failed`)
          reportError(error)
          code = 1
        }
      }
      process.exitCode = code
    })
}

function benches(): string[] {
  if (!existsSync(folder)) return []
  const files = readdirSync(folder).filter(name => /^[a-z][A-Za-z]*\.(ts|js)$/.test(name) && !name.endsWith('.d.ts'))
  return files.map(name => name.replace(/\.(ts|js)$/, '')).filter(name => !notBenches.has(name))
}

function noBench(name: string, known: readonly string[]): TroupeError {
  return new TroupeError('cli.no_bench', {
    boundary: 'cli',
    retriable: false,
    message: `unknown benchmark '${name}'`,
    hint:
      known.length === 0
        ? 'an installed package has no benchmarks; run the command in a checkout'
        : `benchmarks: ${known.join(', ')}`,
  })
}
