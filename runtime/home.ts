/** Path of the directory for files that belong to the user and not to a run: TROUPE_HOME, else ~/.cache/troupe. */
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'

export const troupeHome = (env: NodeJS.ProcessEnv = process.env): string =>
  env.TROUPE_HOME ? resolve(env.TROUPE_HOME) : join(homedir(), '.cache/troupe')
