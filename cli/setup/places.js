/**
 * Paths that set-up reads and writes. A checkout keeps its venv in .venv; an installed package keeps it in a directory
 * of the user's (TROUPE_HOME), since node_modules may be read-only or shared. TROUPE_VENV names another venv for both.
 * runtime/python.ts uses the same paths (a test compares the two).
 */
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')

function places(env = process.env, root = path.join(__dirname, '../..')) {
  const checkout = fs.existsSync(path.join(root, 'tsconfig.json'))
  const home = env.TROUPE_HOME ? path.resolve(env.TROUPE_HOME) : path.join(os.homedir(), '.cache/troupe')
  const venv = env.TROUPE_VENV
    ? path.resolve(env.TROUPE_VENV)
    : path.join(...(checkout ? [root, '.venv'] : [home, 'venv']))
  const logs = checkout ? path.join(root, '.cache') : home
  return {
    root,
    checkout,
    venv,
    /** Folder that holds troupe_policy, its proto and its requirements. */
    policy: path.join(root, checkout ? 'policy' : 'dist/policy'),
    /** Folder that holds troupe_environments and its requirements. */
    environments: path.join(root, checkout ? 'recipes/environment/python' : 'dist/recipes/environment/python'),
    /** Folder that holds the process that writes to Weights & Biases, and its requirements. */
    wandb: path.join(root, checkout ? 'replay/tracking/wandb/python' : 'dist/replay/tracking/wandb/python'),
    logs,
    lock: path.join(logs, 'setup.lock'),
  }
}

module.exports = { places }
