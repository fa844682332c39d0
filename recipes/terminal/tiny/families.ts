/**
 * Families of shell tasks that one short command solves: write, append to, move, copy or delete a file; count, sort,
 * select or add up its lines; replace a word.
 *
 * in   words and a source of random numbers        out  a task, its command, and commands that do something else
 * Invariant: pure. Each command of `wrong` succeeds and prints nothing, but the check of the task refuses its files.
 */
import { type Random, sampleUniform } from '../../../kernels/random'
import type { SuiteTask } from '../suite/task'

export interface Draw {
  readonly random: Random
  /** Draws a word that this task does not have yet. */
  word(): string
  /** Draws a file's name that this task does not have yet. */
  file(): string
  /** Draws a whole number from `low` to `high`, both included. */
  between(low: number, high: number): number
}

export interface ShellTask extends Pick<SuiteTask, 'instruction' | 'files' | 'check'> {
  /** The command that solves the task, in one line without double quotes. */
  readonly command: string
  readonly wrong: readonly string[]
}

type Family = (draw: Draw) => ShellTask

const textOf = (lines: readonly (string | number)[]) => lines.map(line => `${line}\n`).join('')
const holds = (file: string, lines: readonly (string | number)[]) =>
  `[ "$(cat ${file})" = ${lines.map(line => `'${line}'`).join("$'\\n'")} ]`
const times = <T>(count: number, make: (index: number) => T): readonly T[] =>
  Array.from({ length: count }, (_, index) => make(index))

/** Draws four numbers, in random order, that `sort` orders otherwise as texts than as numbers. */
const numbers = ({ random, between }: Draw): readonly number[] =>
  sampleUniform(random, [between(2, 9), between(10, 19), between(100, 199), between(20, 99)], 4)

const byValue = (all: readonly number[]) => [...all].sort((a, b) => a - b)

export const shellFamilies: Readonly<Record<string, Family>> = {
  write({ word, file }) {
    const [first, second, target] = [word(), word(), file()]
    return {
      instruction: `Write the line ${first} ${second} to ${target}`,
      command: `echo ${first} ${second} > ${target}`,
      wrong: [`echo ${first} > ${target}`, `echo ${second} ${first} > ${target}`, `echo ${second} > ${target}`],
      check: holds(target, [`${first} ${second}`]),
    }
  },
  append({ word, file }) {
    const [line, old, target] = [word(), word(), file()]
    return {
      instruction: `Add the line ${line} at the end of ${target}`,
      files: { [target]: textOf([old]) },
      command: `echo ${line} >> ${target}`,
      wrong: [`echo ${line} > ${target}`, `echo ${target} >> ${target}`, `echo > ${target}`],
      check: holds(target, [old, line]),
    }
  },
  move({ word, file }) {
    const [from, to, text] = [file(), file(), word()]
    return {
      instruction: `Rename ${from} to ${to}`,
      files: { [from]: textOf([text]) },
      command: `mv ${from} ${to}`,
      wrong: [`cp ${from} ${to}`, `rm ${from}`, `echo ${from} > ${to}`],
      check: `${holds(to, [text])} && [ ! -e ${from} ]`,
    }
  },
  copy({ word, file }) {
    const [from, to, text] = [file(), file(), word()]
    return {
      instruction: `Copy ${from} to ${to}`,
      files: { [from]: textOf([text]) },
      command: `cp ${from} ${to}`,
      wrong: [`mv ${from} ${to}`, `rm ${from}`, `echo ${from} > ${to}`],
      check: `${holds(to, [text])} && ${holds(from, [text])}`,
    }
  },
  remove({ word, file }) {
    const [gone, kept, text] = [file(), file(), word()]
    return {
      instruction: `Delete ${gone} and keep ${kept}`,
      files: { [gone]: textOf([word()]), [kept]: textOf([text]) },
      command: `rm ${gone}`,
      wrong: [`rm ${kept}`, `rm ${gone} ${kept}`, `mv ${gone} ${kept}`],
      check: `[ ! -e ${gone} ] && ${holds(kept, [text])}`,
    }
  },
  'count-lines'({ word, file, between }) {
    const [from, to, count] = [file(), file(), between(3, 40)]
    return {
      instruction: `Write the number of lines in ${from} to ${to}`,
      files: { [from]: textOf(times(count, at => `${at} ${word()}`)) },
      command: `wc -l < ${from} > ${to}`,
      wrong: [`wc -w < ${from} > ${to}`, `wc -l ${from} > ${to}`, `head -n 1 ${from} > ${to}`],
      check: holds(to, [count]),
    }
  },
  'count-word'({ word, file, between }) {
    const [from, to, wanted, other] = [file(), file(), word(), word()]
    const count = between(2, 20)
    const lines = times(2 * count + between(1, 9), at => `${at} ${at % 2 === 1 && at < 2 * count ? wanted : other}`)
    return {
      instruction: `Write how many lines of ${from} have the word ${wanted} to ${to}`,
      files: { [from]: textOf(lines) },
      command: `grep -c ${wanted} ${from} > ${to}`,
      wrong: [`grep ${wanted} ${from} > ${to}`, `grep -vc ${wanted} ${from} > ${to}`, `wc -l < ${from} > ${to}`],
      check: holds(to, [count]),
    }
  },
  sort(draw) {
    const [from, to, drawn] = [draw.file(), draw.file(), numbers(draw)]
    return {
      instruction: `Sort the numbers in ${from} into ${to}`,
      files: { [from]: textOf(drawn) },
      command: `sort -n ${from} > ${to}`,
      wrong: [`sort ${from} > ${to}`, `sort -n ${from} > ${from}`, `sort -nr ${from} > ${to}`],
      check: holds(to, byValue(drawn)),
    }
  },
  largest(draw) {
    const [from, to, drawn] = [draw.file(), draw.file(), numbers(draw)]
    return {
      instruction: `Write the largest number in ${from} to ${to}`,
      files: { [from]: textOf(drawn) },
      command: `sort -n ${from} | tail -n 1 > ${to}`,
      wrong: [`sort -n ${from} | head -n 1 > ${to}`, `sort ${from} | tail -n 1 > ${to}`, `sort -n ${from} > ${to}`],
      check: holds(to, [Math.max(...drawn)]),
    }
  },
  first({ word, file, between }) {
    const [from, to, count] = [file(), file(), between(2, 5)]
    const lines = times(count + between(2, 9), at => `${word()} ${at}`)
    return {
      instruction: `Write the first ${count} lines of ${from} to ${to}`,
      files: { [from]: textOf(lines) },
      command: `head -n ${count} ${from} > ${to}`,
      wrong: [`tail -n ${count} ${from} > ${to}`, `head -n ${count + 1} ${from} > ${to}`, `cp ${from} ${to}`],
      check: holds(to, lines.slice(0, count)),
    }
  },
  sum(draw) {
    const [from, to, drawn] = [draw.file(), draw.file(), numbers(draw)]
    return {
      instruction: `Write the sum of the numbers in ${from} to ${to}`,
      files: { [from]: textOf(drawn) },
      command: `awk '{n += $1} END {print n}' ${from} > ${to}`,
      wrong: [`awk '{n += 1} END {print n}' ${from} > ${to}`, `wc -l < ${from} > ${to}`, `sort -n ${from} > ${to}`],
      check: holds(to, [drawn.reduce((a, b) => a + b, 0)]),
    }
  },
  replace({ word, file }) {
    const [from, to, target] = [word(), word(), file()]
    return {
      instruction: `Replace the word ${from} by ${to} in ${target}`,
      files: { [target]: textOf([`${from} 1`, `2 ${from}`]) },
      command: `sed -i s/${from}/${to}/ ${target}`,
      wrong: [`sed -i s/${to}/${from}/ ${target}`, `sed -i s/${from}// ${target}`, `echo ${to} > ${target}`],
      check: holds(target, [`${to} 1`, `2 ${to}`]),
    }
  },
}
