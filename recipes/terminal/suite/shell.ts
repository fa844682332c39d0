/**
 * Shell tasks of the suite: write, move, rename and pack files, count lines, find the largest file, write a script,
 * replace a word.
 */
import type { SuiteTask } from './task'

const writeFile = ([name, path, text]: readonly [string, string, string]): SuiteTask => ({
  name: `write-${name}`,
  family: 'write-file',
  instruction: `Write the file /app/${path}. Its content is the line: ${text}`,
  solution: `echo '${text}' > /app/${path}`,
  check: `[ "$(cat ${path})" = '${text}' ]`,
})

const moveFiles = ([extension, target]: readonly [string, string]): SuiteTask => ({
  name: `move-${extension}`,
  family: 'move-files',
  instruction: `Make the directory /app/${target}, and move all files of /app whose names end in .${extension} there. Other files stay where they are.`,
  files: {
    [`one.${extension}`]: '1\n',
    [`two words.${extension}`]: '2\n',
    [`three.${extension}.old`]: 'stays\n',
    'four.dat': 'stays\n',
  },
  solution: `mkdir -p /app/${target}\n\nmv /app/*.${extension} /app/${target}/`,
  check: `[ "$(ls ${target} | wc -l)" = 2 ] && [ "$(cat ${target}/one.${extension} "${target}/two words.${extension}")" = $'1\\n2' ] && [ -f three.${extension}.old ] && [ -f four.dat ] && [ ! -e one.${extension} ]`,
})

const countLines = ([word, count]: readonly [string, number]): SuiteTask => ({
  name: `count-${word.toLowerCase()}`,
  family: 'count-lines',
  instruction: `How many lines of /app/events.log contain the word ${word}? Write the number to /app/count.txt.`,
  files: {
    'events.log': Array.from({ length: 3 * count + 5 }, (_, at) =>
      at % 3 === 0 && at < 3 * count ? `${at} ${word} disk ${at * 7}` : `${at} other line`,
    )
      .map(line => `${line}\n`)
      .join(''),
  },
  solution: `grep -c '${word}' /app/events.log\n\ngrep -c '${word}' /app/events.log > /app/count.txt`,
  check: `[ "$(tr -d '[:space:]' < count.txt)" = ${count} ]`,
})

const largestFile = ([name, sizes]: readonly [string, Readonly<Record<string, number>>]): SuiteTask => {
  const largest = Object.entries(sizes).sort(([, a], [, b]) => b - a)[0]![0]
  return {
    name: `largest-${name}`,
    family: 'largest-file',
    instruction: 'Which file in /app/files is the largest? Write its name, without the directory, to /app/largest.txt.',
    files: Object.fromEntries(Object.entries(sizes).map(([file, size]) => [`files/${file}`, 'x'.repeat(size)])),
    solution: 'ls -lS /app/files\n\nls -S /app/files | head -n 1 > /app/largest.txt',
    check: `[ "$(tr -d '[:space:]' < largest.txt)" = '${largest}' ]`,
  }
}

const executable = ([name, output]: readonly [string, string]): SuiteTask => ({
  name: `script-${name}`,
  family: 'script',
  instruction: `Write an executable shell script /app/${name}.sh that prints ${output}`,
  solution: `printf '#!/bin/sh\\necho "${output}"\\n' > /app/${name}.sh\n\nchmod +x /app/${name}.sh`,
  check: `[ -x ${name}.sh ] && [ "$(./${name}.sh)" = '${output}' ]`,
})

const renameExtension = ([from, to]: readonly [string, string]): SuiteTask => ({
  name: `rename-${from}-${to}`,
  family: 'rename',
  instruction: `Rename every file in /app/notes whose name ends in .${from}, so that it ends in .${to} instead.`,
  files: { [`notes/a.${from}`]: 'a\n', [`notes/b.c.${from}`]: 'b\n', 'notes/other': 'o\n' },
  solution: `cd /app/notes\n\nfor file in *.${from}; do mv "$file" "\${file%.${from}}.${to}"; done`,
  check: `[ "$(cd notes && echo *)" = 'a.${to} b.c.${to} other' ] && [ "$(cat notes/b.c.${to})" = b ]`,
})

const replaceWord = ([from, to]: readonly [string, string]): SuiteTask => ({
  name: `replace-${from}`,
  family: 'replace',
  instruction: `In every file below /app/src, replace the word ${from} by ${to}.`,
  files: {
    'src/a.txt': `${from} and ${from}\n`,
    'src/deep/b.txt': `no match\nlast ${from}\n`,
    'outside.txt': `${from}\n`,
  },
  solution: `grep -rl '${from}' /app/src\n\ngrep -rl '${from}' /app/src | xargs sed -i 's/${from}/${to}/g'`,
  check: `[ "$(cat src/a.txt)" = '${to} and ${to}' ] && [ "$(tail -n 1 src/deep/b.txt)" = 'last ${to}' ] && [ "$(cat outside.txt)" = '${from}' ]`,
})

const pack = ([directory, archive]: readonly [string, string]): SuiteTask => ({
  name: `pack-${directory}`,
  family: 'pack',
  instruction: `Pack the directory /app/${directory} into the compressed archive /app/${archive}. Paths in the archive begin with ${directory}/.`,
  files: { [`${directory}/one.txt`]: '1\n', [`${directory}/in/two.txt`]: '2\n' },
  solution: `tar -czf /app/${archive} -C /app ${directory}\n\ntar -tzf /app/${archive}`,
  check: `rm -rf /tmp/unpacked && mkdir /tmp/unpacked && tar -xzf ${archive} -C /tmp/unpacked && diff -r ${directory} /tmp/unpacked/${directory}`,
})

export const shellTasks: readonly SuiteTask[] = [
  ...(
    [
      ['greeting', 'hello.txt', 'Hello, world!'],
      ['version', 'VERSION', '1.4.2'],
      ['name', 'name.txt', 'Ada Lovelace'],
      ['answer', 'answer.txt', '42'],
    ] as const
  ).map(writeFile),
  ...(
    [
      ['log', 'logs'],
      ['csv', 'tables'],
      ['png', 'images'],
    ] as const
  ).map(moveFiles),
  ...(
    [
      ['ERROR', 7],
      ['WARNING', 12],
      ['TIMEOUT', 4],
      ['RETRY', 19],
    ] as const
  ).map(countLines),
  ...(
    [
      ['report', { 'a.txt': 20, 'b.txt': 300, 'c.txt': 45 }],
      ['backup', { 'monday.bin': 900, 'tuesday.bin': 1200, 'friday.bin': 1100 }],
      ['photo', { 'x1.jpg': 512, 'x2.jpg': 511, 'x3.jpg': 64 }],
    ] as const
  ).map(largestFile),
  ...(
    [
      ['hello', 'hello from a script'],
      ['ready', 'ready'],
    ] as const
  ).map(executable),
  ...(
    [
      ['txt', 'md'],
      ['jpeg', 'jpg'],
    ] as const
  ).map(renameExtension),
  ...(
    [
      ['colour', 'color'],
      ['foo', 'bar'],
      ['localhost', 'database'],
    ] as const
  ).map(replaceWord),
  ...(
    [
      ['site', 'site.tar.gz'],
      ['data', 'backup.tgz'],
    ] as const
  ).map(pack),
]
