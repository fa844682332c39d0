/**
 * Makes tasks of the shell families, in any number.
 *
 * in   an index, a seed, a split        out  a task in the suite's form, with its command and typical wrong ones
 * Invariant: pure. A hash of each word decides its split, so no word and no file name of a held-out task occurs in
 * training, under any seed.
 */
import { pcg32, type Random } from '../../../kernels/random'
import { deriveSeed } from '../../../runtime/effects'
import type { SuiteTask } from '../suite/task'
import { type ShellTask, shellFamilies } from './families'

export type Split = 'train' | 'eval'
export type TinyTask = SuiteTask & ShellTask

/** Share of words that belong to the split `eval`: one in this many. */
const evalOneIn = 8
const consonants = [...'bdfgklmnprstvz']
const vowels = [...'aeiou']
/** Words of instructions that `wordOf` could draw; a task does not use them as its drawn words. */
const spoken = new Set(['line'])
const families = Object.keys(shellFamilies)

/** Returns the task with this index (an integer ≥ 0); one index after another takes the next family, in a cycle. */
export function tinyTask(index: number, seed: number, split: Split): TinyTask {
  const random = pcg32(deriveSeed('terminal-tiny/task', seed, split, index))
  const family = families[index % families.length]!
  const drawn = new Set<string>()
  const word = () => {
    for (;;) {
      const one = wordOf(random)
      if (drawn.has(one) || spoken.has(one) || splitOf(one) !== split) continue
      drawn.add(one)
      return one
    }
  }
  const task = shellFamilies[family]!({
    random,
    word,
    file: () => `${word()}.txt`,
    between: (low, high) => low + random.below(high - low + 1),
  })
  return { name: `${split}-${String(index).padStart(5, '0')}-${family}`, family, solution: task.command, ...task }
}

/** Returns the split of a word, independent of the seed. */
export const splitOf = (word: string): Split => (deriveSeed('terminal-tiny/split', word) % evalOneIn ? 'train' : 'eval')

const wordOf = (random: Random): string => {
  const one = (of: readonly string[]) => of[random.below(of.length)]!
  return `${one(consonants)}${one(vowels)}${one(consonants)}${one(vowels)}`
}
