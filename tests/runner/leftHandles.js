/**
 * A Jest reporter that ends Jest where a test left something open, and names what that was.
 *
 * in   the end of the last test      out  on stderr what still keeps the process alive: sockets, children, timers, workers
 * Without it Jest would wait for ever and the suite's deadline would count as a failed test. The verdict is that of the tests.
 */
const fs = require('node:fs')

/** Jest writes its report and exits long before; 10 s also let sockets and children end that are about to. */
const graceMs = 10_000

const commandOf = pid => {
  try {
    return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
  } catch {
    return 'gone'
  }
}

const addressOf = end => (end === undefined || end === null ? '?' : `${end.ip4 ?? end.host ?? end.ip6}:${end.port}`)

const describers = {
  process: handle => `child ${handle.pid} (${commandOf(handle.pid)})`,
  tcp: handle => `socket ${addressOf(handle.localEndpoint)} to ${addressOf(handle.remoteEndpoint)}`,
}

/** What keeps this process alive, a line each. From Node's diagnostic report, section libuv. */
function leftHandles(report = process.report.getReport()) {
  const open = report.libuv.filter(handle => handle.is_active && handle.is_referenced)
  const handles = open.map(handle => describers[handle.type]?.(handle) ?? `${handle.type} ${handle.fd ?? ''}`.trim())
  const timers = process.getActiveResourcesInfo().filter(kind => kind === 'Timeout').length
  const workers = report.workers.map(worker => `worker thread ${worker.header?.threadId ?? ''}`.trim())
  return [...handles, ...workers, ...(timers > 0 ? [`timers: ${timers}`] : [])]
}

class LeftHandles {
  onRunComplete(_contexts, results) {
    const timer = setTimeout(() => {
      const lines = leftHandles().map(line => `  ${line}\n`)
      process.stderr.write(`Jest did not end ${graceMs / 1000} s after its last test. Left open:\n${lines.join('')}`)
      process.exit(results.success ? 0 : 1)
    }, graceMs)
    timer.unref()
  }
}

module.exports = LeftHandles
module.exports.leftHandles = leftHandles
