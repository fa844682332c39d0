/**
 * Runs a tool of the set-up, such as npm, pip, uv, python, protoc or Maven: output goes to a log file, the latest line
 * to a terminal (or every 20 s to a pipe), and a failure becomes an error that names the log and, if the output shows
 * it, the cause and a remedy. A signal to set-up ends the tool's whole process group.
 */
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { noteTool } = require('./lock')
const { SetupError, say, seconds } = require('./say')

const offline =
  'nothing could be fetched: check the network or the proxy. Without one, packages can come from a mirror or a folder: ' +
  "TROUPE_PIP_ARGS='--index-url https://mirror/simple' or '--no-index --find-links DIR' for pip, 'npm config set registry' for npm, TROUPE_MAVEN_ARGS='-s settings.xml' for Maven"

const faults = [
  [/ENOSPC|No space left on device|Errno 28/, 'the disk is full', () => 'free some space and run the set-up again'],
  [
    /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|network (?:request|connectivity)|NewConnectionError|Failed to establish a new connection|name resolution|Network is unreachable|Connection refused|ConnectTimeout|ReadTimeout|Read timed out|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED|UnknownHostException|Unknown host|Could not transfer artifact|in offline mode/,
    'no network, or the package index does not answer',
    () => offline,
  ],
  [/from versions: none/, 'the package index does not have a package, or does not answer', () => offline],
  [
    /package\.json and package-lock\.json .* are in sync/,
    'package-lock.json does not match package.json',
    () => 'run npm install, which writes a matching lock',
  ],
  [
    /ensurepip is not\s+available|No module named (?:venv|ensurepip)/,
    'this Python cannot make a venv',
    () => 'install its venv module (Debian, Ubuntu: apt install python3-venv), or name another with TROUPE_PYTHON',
  ],
  [
    /No matching distribution found|Could not find a version/,
    'the package index has no build of a pinned package for this Python and machine',
    () => 'check in TROUPE_PIP_ARGS that the index has the pinned version, or take another Python with TROUPE_PYTHON',
  ],
  [/EACCES|EPERM|Permission denied/, 'a permission is missing', () => 'check who owns the path that the output names'],
]

function explain(name, output, log, how = 'failed') {
  const detail = output.trimEnd().split('\n').slice(-12).join('\n')
  const fault = faults.find(([pattern]) => pattern.test(output))
  if (fault) return new SetupError(`${name}: ${fault[1]}`, `${fault[2]()} (all output: ${log})`, detail)
  return new SetupError(`${name} ${how}`, `all of its output is in ${log}`, detail)
}

/** Environment without the variables that would make pip or Python use other folders than the venv. */
function cleanEnv() {
  const env = { ...process.env }
  for (const name of ['PYTHONPATH', 'PYTHONHOME', 'PIP_USER', 'PIP_TARGET', 'PIP_PREFIX', '__PYVENV_LAUNCHER__'])
    delete env[name]
  return env
}

/**
 * Runs a tool, with its output in a log file. env: variables to add to the tool's environment.
 * @returns {Promise<void>} rejects with a SetupError (and `output`) when the tool fails; when a signal ended set-up,
 *   the error has `ended: true`
 */
function runTool(name, command, args, { cwd, env, where: { logs, lock } }) {
  fs.mkdirSync(logs, { recursive: true })
  const log = path.join(logs, `setup-${name.replaceAll(/\W+/g, '-')}.log`)
  const sink = fs.openSync(log, 'w')
  const terminal = process.stderr.isTTY
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...cleanEnv(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    if (child.pid) noteTool(lock, child.pid)
    const began = performance.now()
    let output = ''
    let last = ''
    const onData = chunk => {
      try {
        fs.writeSync(sink, chunk)
      } catch {
        // the log may not fit on a full disk; the tool's own failure is the one to report
      }
      output = (output + chunk).slice(-200_000)
      const lines = String(chunk)
        .split('\n')
        .filter(line => line.trim() && !line.startsWith('npm warn'))
      last = lines.at(-1)?.trim() ?? last
      if (terminal) process.stderr.write(`\r\u001b[K  ${last.slice(0, (process.stderr.columns || 80) - 4)}`)
    }
    child.stdout.on('data', onData)
    child.stderr.on('data', onData)
    const beat = setInterval(() => {
      const doing = last === '' ? '' : `, ${last.slice(0, 100)}`
      if (!terminal) say(`${name}: ${seconds(performance.now() - began)}${doing}`)
    }, 20_000)
    let ended = ''
    const forward = signal => {
      ended = signal
      try {
        process.kill(-child.pid, 'SIGTERM')
      } catch {
        // the process has ended already
      }
    }
    process.on('SIGINT', forward)
    process.on('SIGTERM', forward)
    process.on('SIGHUP', forward)
    const fail = error => reject(Object.assign(error, { output }))
    let settled = false
    // A tool that cannot be started emits `error` and then `close`.
    const settle = act => {
      if (settled) return
      settled = true
      clearInterval(beat)
      if (terminal) process.stderr.write('\r\u001b[K')
      for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeListener(signal, forward)
      fs.closeSync(sink)
      act()
    }
    child.once('error', error => settle(() => fail(explain(name, `${command}: ${error.message}`, log))))
    child.once('close', (code, signal) =>
      settle(() => {
        if (ended)
          fail(
            Object.assign(
              new SetupError(`${name}: ended by ${ended}`, 'run the set-up again: it repeats an interrupted step'),
              { ended: true },
            ),
          )
        else if (code === 0) resolve()
        else fail(explain(name, output, log, signal ? `was ended by ${signal}` : `failed with exit code ${code}`))
      }),
    )
  })
}

module.exports = { runTool, cleanEnv }
