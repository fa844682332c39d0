/**
 * Sizes of production code: files beside each other in a folder, and lines of a file.
 *
 * in   production files with their text     out  violations, and a summary of each room
 * A file over the bound must give its reason in its header, in the words of `excuse`.
 */
const fs = require('node:fs')
const path = require('node:path')
const { posix } = path
const { filesBelow } = require('./files')

const maxFiles = 25
const maxLines = 320
const excuse = /longer than 320 lines because \S/i

/** Folders at the root that hold no production code. */
const otherRooms = new Set(['tests', 'bench', 'examples', 'docs', 'deploy'])
const isCode = file => /\.([cm]?[jt]s|py|c|h)$/.test(file)

const roomOf = file => file.slice(0, file.indexOf('/'))
const lineCount = text => text.split('\n').length - (text.endsWith('\n') ? 1 : 0)

/** Files below the rooms; those in the root (settings of tools) are no room's. An asset has no text. */
function productionFiles(root) {
  const files = filesBelow(root).filter(
    file =>
      file.includes('/') &&
      !otherRooms.has(roomOf(file)) &&
      !file.startsWith('policy/tests/') &&
      !/(^|\/)build\/|\.pyc$/.test(file),
  )
  return new Map(files.map(file => [file, isCode(file) ? fs.readFileSync(path.join(root, file), 'utf8') : '']))
}

/** The comment or docstring that the file begins with; a line for the shell may stand before it. */
function headerOf(text) {
  const found = /^(?:#!.*\n)?\s*(?:\/\*([\s\S]*?)\*\/|"""([\s\S]*?)"""|((?:\/\/.*\n)+))/.exec(text)
  return (found?.[1] ?? found?.[2] ?? found?.[3] ?? '').replace(/\n\s*(\*|\/\/)?\s*/g, ' ')
}

function countByFolder(files) {
  const counts = new Map()
  for (const file of files) counts.set(posix.dirname(file), (counts.get(posix.dirname(file)) ?? 0) + 1)
  return counts
}

/** @param {ReadonlyMap<string, string>} files text by path */
function sizeViolations(files) {
  const full = [...countByFolder(files.keys())].filter(([, count]) => count > maxFiles)
  const long = [...files].filter(([, text]) => lineCount(text) > maxLines && !excuse.test(headerOf(text)))
  return [
    ...full.map(
      ([folder, count]) =>
        `${folder}: ${count} files beside each other; at most ${maxFiles}: make a folder of a concept`,
    ),
    ...long.map(
      ([file, text]) =>
        `${file}: ${lineCount(text)} lines; at most ${maxLines}: split it, or say in its header why it is "longer than ${maxLines} lines because …"`,
    ),
  ]
}

/** One row a room: code files, their lines, the fullest folder and the longest file. */
function roomSizes(files) {
  const most = pairs => pairs.reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0])
  const rooms = [...new Set([...files.keys()].map(roomOf))]
  return rooms.map(room => {
    const own = [...files].filter(([file]) => roomOf(file) === room)
    const lines = own.filter(([file]) => isCode(file)).map(([file, text]) => [file, lineCount(text)])
    return {
      room,
      files: lines.length,
      lines: lines.reduce((sum, [, count]) => sum + count, 0),
      fullest: most([...countByFolder(own.map(([file]) => file))]),
      longest: most(lines),
    }
  })
}

module.exports = { maxFiles, maxLines, productionFiles, roomSizes, sizeViolations }
