/**
 * `troupe demo`: serves the dashboard's page for a recorded run that ships with Troupe, and opens it in a browser. It
 * needs only Node and trains nothing.
 *
 * in   dashboard/demo/quickstart.recording        out  on stderr: the page's address
 * Invariant: the run lies in a temporary directory, which is removed at the end.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { type ServeOptions, serveDashboard, withAddress } from './dashboard'

export function registerDemo(program: Command): void {
  const command = program
    .command('demo')
    .description('show the dashboard over a recorded run that ships with Troupe: no Python, no model')
    .option('--no-open', 'do not open a browser')
  withAddress(command, 4173).action(async (options: Omit<ServeOptions, 'bus'>) => {
    process.exitCode = await demo(options)
  })
}

async function demo(options: Omit<ServeOptions, 'bus'>): Promise<number> {
  const { unpackRecording } = require('../dashboard/demo/recording') as typeof import('../dashboard/demo/recording')
  const directory = mkdtempSync(join(tmpdir(), 'troupe-demo-'))
  try {
    const run = await unpackRecording(
      readFileSync(join(__dirname, '../dashboard/demo/quickstart.recording')),
      directory,
    )
    return await serveDashboard({ ...options, bus: `lmdb:${directory}`, run })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
