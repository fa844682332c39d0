/**
 * One set-up at a time: a lock file that names its owner by pid and start time. A second set-up waits and says for
 * whom; a lock whose owner is gone (or whose pid now belongs to a younger process) is broken.
 */
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, say } = require('./say')

const waitLimitMs = 60 * 60_000

/** When a process began, in clock ticks since boot; '' where /proc cannot say. */
function startOf(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return ''
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

function isStale(text, ageMs) {
  const [pid, start] = text.split(' ')
  if (!Number(pid)) return ageMs > 2_000 // created but not yet written
  return !isAlive(Number(pid)) || (start !== '' && startOf(pid) !== start)
}

/** Moves a stale lock aside; a live lock that was taken meanwhile is put back. */
function breakLock(file, staleText) {
  const aside = `${file}.${process.pid}`
  try {
    fs.renameSync(file, aside)
  } catch {
    return // someone else broke it
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
      fs.writeFileSync(file, `${process.pid} ${startOf(process.pid)}`, { flag: 'wx' })
      break
    } catch (error) {
      if (error.code === 'ENOSPC') throw new SetupError('the disk is full', `free some space on ${path.dirname(file)}`)
      if (error.code !== 'EEXIST')
        throw new SetupError(`cannot write ${file}: ${error.message}`, 'check its permissions')
    }
    let text = ''
    let ageMs = 0
    try {
      text = fs.readFileSync(file, 'utf8')
      ageMs = Date.now() - fs.statSync(file).mtimeMs
    } catch {
      continue // released between the two calls
    }
    if (isStale(text, ageMs)) {
      breakLock(file, text)
      continue
    }
    if (!told) say(`waiting for another set-up (pid ${text.split(' ')[0]}, ${file})`)
    told = true
    if (performance.now() - began > waitLimitMs) {
      throw new SetupError(
        `another set-up still holds ${file}`,
        'end that process, or delete the file if it is none of yours',
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

module.exports = { withLock }
