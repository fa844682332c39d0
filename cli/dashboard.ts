/**
 * `troupe dashboard`: serves a web page that shows the runs of a bus, until a signal ends it, or with
 * --until-stdin-ends the end of stdin.
 *
 * in   a bus, an address        out  on stderr: the page's address; with --open, the page in a browser
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Command } from 'commander'
import { untilSignal } from './io/untilSignal'
import { withBus, withDirectory } from './options/busOptions'
import { wholeNumber } from './options/readers'

export interface ServeOptions {
  readonly bus: string
  readonly dir?: string
  readonly run?: string
  readonly port: number
  readonly host: string
  readonly tokenFile?: string
  readonly allowHost?: readonly string[]
  readonly open?: boolean
  readonly allowActions?: boolean
  readonly untilStdinEnds?: boolean
}

const bin = join(__dirname, __filename.endsWith('.ts') ? 'bin.js' : '../../cli/bin.js')

/** Adds the options that `dashboard` and `demo` share. */
export const withAddress = (command: Command, port: number): Command =>
  command
    .option('--port <n>', 'port to listen on; 0 takes a free one', wholeNumber(0, 65_535), port)
    .option('--host <address>', 'address to listen on; any but loopback needs --token-file', '127.0.0.1')
    .option('--token-file <file>', 'file with the token that the page must be opened with (#token=TOKEN)')
    .option('--allow-host <name...>', 'names that requests may have in their Host header, besides localhost')

export function registerDashboard(program: Command): void {
  const command = program
    .command('dashboard')
    .description('serve a page over the runs of a bus: live, finished or crashed')
    .option('--run <id>', 'show only this run (default: every run of the bus)')
    .option('--open', 'open the page in a browser')
    .option('--allow-actions', 'let the page fork, score again, compare, pause, drain, abort and resume runs')
    .option(
      '--until-stdin-ends',
      'exit when stdin ends (for programs that start this command, such as train --dashboard)',
    )
  withAddress(withDirectory(withBus(command)), 4173).action(async (options: ServeOptions) => {
    process.exitCode = await serveDashboard(options)
  })
}

/** Prints the address and serves until a signal, or until stdin ends if asked. Returns the exit code. */
export async function serveDashboard(options: ServeOptions): Promise<number> {
  const { openDashboard } =
    require('../dashboard/server/openDashboard') as typeof import('../dashboard/server/openDashboard')
  const { bus, dir, run, port, host, tokenFile, allowHost } = options
  const dashboard = await openDashboard({
    ...{ bus, port, host },
    ...(dir === undefined ? {} : { directory: dir }),
    ...(run === undefined ? {} : { only: run }),
    ...(tokenFile === undefined ? {} : { tokenFile }),
    ...(allowHost === undefined ? {} : { allowedHosts: allowHost }),
    ...(options.allowActions === true ? { actions: [process.execPath, bin] } : {}),
  })
  const view = run === undefined ? '/' : `/r/${encodeURIComponent(run)}`
  const { actionToken } = dashboard
  const address =
    actionToken !== undefined
      ? `${dashboard.url}#token=${actionToken}&to=${view}`
      : `${dashboard.url}${run === undefined ? '' : `#${view}`}`
  process.stderr.write(`dashboard: ${address}\n`)
  if (options.open) openInBrowser(address)
  const code = await untilSignal(options.untilStdinEnds === true)
  await dashboard.close()
  return code
}

/** Opens an address in the user's browser. If no browser can be started, it prints a line that says so. */
export function openInBrowser(address: string): void {
  const opener = process.platform === 'darwin' ? 'open' : 'xdg-open'
  spawn(opener, [address], { stdio: 'ignore', detached: true })
    .on('error', () => process.stderr.write('dashboard: no browser could be opened; open the address by hand\n'))
    .unref()
}
