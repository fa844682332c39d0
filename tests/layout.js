#!/usr/bin/env node
/**
 * `npm run layout`: proves the house's rules: floors, no circles (TypeScript and Python), sizes of folders and files.
 *
 * in   the sources, through the tests of the rules     out  a row a room, and last "N passed, N failed, N skipped"
 */
const fs = require('node:fs')
const path = require('node:path')
const { cleanUpAtExit, closingLine, jest, root, runAndCount } = require('./runner/commands')
const { productionFiles, roomSizes } = require('./runner/sizes')

const tests = ['tests/floors.test.ts', 'tests/floorsPython.test.ts', 'tests/layoutSizes.test.ts']

function printRooms() {
  const row = (room, files, lines, fullest, longest) =>
    console.log(`${room.padEnd(10)}${files.padStart(6)}${lines.padStart(8)}  ${fullest.padEnd(36)}${longest}`)
  row('room', 'files', 'lines', 'fullest folder', 'longest file')
  for (const { room, files, lines, fullest, longest } of roomSizes(productionFiles(root))) {
    row(room, String(files), String(lines), `${fullest[0]} (${fullest[1]})`, `${longest[0]} (${longest[1]})`)
  }
}

async function main() {
  cleanUpAtExit()
  const present = tests.filter(file => fs.existsSync(path.join(root, file)))
  const counts = await runAndCount(jest('layout', present), 5 * 60_000)
  printRooms()
  for (const note of counts.notes) console.log(note)
  console.log(closingLine(counts))
  process.exitCode = counts.failed === 0 ? 0 : 1
}

main()
