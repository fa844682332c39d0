/** Where what belongs to the user, and to no run, is kept: TROUPE_HOME, else the user's cache. */
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'

export const troupeHome = (env: NodeJS.ProcessEnv = process.env): string =>
  env.TROUPE_HOME ? resolve(env.TROUPE_HOME) : join(homedir(), '.cache/troupe')
