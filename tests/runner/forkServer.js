/**
 * Starts one fork server (policy/troupe_policy/fork_server.py) for a whole run of the tests: the fork servers of test
 * processes are forked from it, which saves each of them the 7 s of CPU time that importing torch takes.
 *
 * in   the interpreter of the set-up     out  the variable TROUPE_FORK_SERVER (backends/forkServerProcess.ts)
 * Invariant: without it the tests run as well, only slower. It ends with this process.
 */
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { directory, root, threads, venv } = require('./commands')

/** Sets the variable, and begins to start the server; until it listens, test processes import torch themselves. */
function shareForkServer() {
  const python = path.join(path.resolve(venv), 'bin/python')
  if (process.platform !== 'linux' || !fs.existsSync(python)) return
  const socket = path.join(directory, 'fork')
  const words = ['-m', 'troupe_policy.fork_server', socket, '--parent', String(process.pid)]
  // The padding is room for the command lines of forks, which tests read.
  const child = spawn(python, [...words, '--title', '.'.repeat(4096)], {
    cwd: root,
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { ...threads, ...process.env, PYTHONPATH: path.join(root, 'policy'), PYTHONDONTWRITEBYTECODE: '1' },
  })
  child.once('error', () => {})
  child.stdin.once('error', () => {})
  child.unref()
  child.stdin.unref()
  process.env.TROUPE_FORK_SERVER = socket
}

module.exports = { shareForkServer }
