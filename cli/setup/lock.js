/**
 * Lets one set-up run at a time: a lock file whose first line names its owner by pid and start time, further lines the
 * tools that the owner started. A second set-up prints the owner's pid, waits, and fails after an hour. A lock whose
 * owner is gone (or whose pid now belongs to a younger process) is broken, after ending the tools (such as pip) that
 * outlived a killed set-up and would still write into the venv.
 */
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, say } = require('./say')

const waitLimitMs = 60 * 60_000

/** State and start time (clock ticks since boot) of a process; both '' when the process or /proc does not exist. */
function look(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return { state: fields[0], start: fields[19] }
  } catch {
    return { state: '', start: '' }
  }
}

const nameOf = pid => `${pid} ${look(pid).start}`

function isAlive(line) {
  const [pid, start] = line.split(' ')
  try {
    process.kill(Number(pid), 0)
  } catch (error) {
    if (error.code !== 'EPERM') return false
  }
  const now = look(pid)
  return now.state !== 'Z' && (!start || now.start === start)
}

function isStale(text, ageMs) {
  const owner = text.split('\n')[0]
  if (!Number(owner.split(' ')[0])) return ageMs > 2_000 // the lock file was created but not yet written
  return !isAlive(owner)
}

async function endOrphans(text) {
  for (const line of text.split('\n').slice(1).filter(Boolean)) {
    const [pid, start] = line.split(' ')
    if (!start || !isAlive(line)) continue // without a start time the pid may belong to any process
    say(`ending a tool that a killed set-up left running (pid ${pid})`)
    process.kill(-Number(pid), 'SIGKILL')
    while (isAlive(line)) await new Promise(resolve => setTimeout(resolve, 20))
  }
}

/** Adds a tool's process to the lock file, so that the next set-up finds the tool if this process is killed. */
function noteTool(file, pid) {
  if (fs.existsSync(file)) fs.appendFileSync(file, `\n${nameOf(pid)}`)
}

/** Moves a stale lock aside; a live lock that another process took meanwhile is put back. */
function breakLock(file, staleText) {
  const aside = `${file}.${process.pid}`
  try {
    fs.renameSync(file, aside)
  } catch {
    return // another process broke the stale lock first
  }
  if (fs.readFileSync(aside, 'utf8') !== staleText) fs.linkSync(aside, file)
  fs.rmSync(aside, { force: true })
}

async function withLock(file, work) {
  fs.mkdirSync(path.dirname(file), { recursive: true })
  const began = performance.now()
  let told = false
  for (;;) {
    try {
      fs.writeFileSync(file, nameOf(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if (error.code !== 'EEXIST')
        throw new SetupError(
          `cannot write ${file}: ${error.message}`,
          `remove the cause: ${path.dirname(file)} must be writable, with free space`,
        )
    }
    let text = ''
    let ageMs = 0
    try {
      text = fs.readFileSync(file, 'utf8')
      ageMs = Date.now() - fs.statSync(file).mtimeMs
    } catch {
      continue // the owner released the lock between the two calls
    }
    if (isStale(text, ageMs)) {
      await endOrphans(text)
      breakLock(file, text)
      continue
    }
    if (!told) say(`waiting for another set-up (pid ${text.split(' ')[0]}, ${file})`)
    told = true
    if (performance.now() - began > waitLimitMs) {
      throw new SetupError(
        `another set-up still holds ${file} after ${waitLimitMs / 60_000} minutes`,
        'end that process, or delete the file if no set-up is running',
      )
    }
    await new Promise(resolve => setTimeout(resolve, 300))
  }
  const release = () => fs.rmSync(file, { force: true })
  process.once('exit', release)
  try {
    return await work()
  } finally {
    process.removeListener('exit', release)
    release()
  }
}

module.exports = { withLock, noteTool }
