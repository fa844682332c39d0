/**
 * IFEval (arXiv 2311.07911): prompts with instructions that a program can check, in the form of `input_data.jsonl`.
 *
 * in   rows {key, prompt, instruction_id_list, kwargs}
 * out  problems; a reward: 1 iff the response follows every instruction
 * Invariant: the reward is the paper's strict prompt-level rule. The recorded answer has one digit for each
 * instruction, 1 where it was followed, so that the instruction-level rule can be computed from the log.
 */

import type { RewardFunction } from '../../../config'
import { withoutSpecialTokens } from '../../../kernels'
import { badRow, isObject, type Problems, problemCollector, rowsOf } from '../problem'
import { type Arguments, instructions } from './instructions'

interface Asked {
  readonly ids: readonly string[]
  readonly kwargs: readonly Arguments[]
}

export function parseIfeval(text: string): Problems {
  const { add, drop, result } = problemCollector()
  for (const { row, place } of rowsOf(text)) {
    if (row === undefined) drop('not JSON')
    else if (!isObject(row)) drop('not an object')
    else if (typeof row.prompt !== 'string' || row.prompt.trim() === '') drop('no prompt')
    else {
      const { key, prompt, instruction_id_list: ids, kwargs } = row
      if (typeof key !== 'number' && typeof key !== 'string') throw badRow(place, 'the row has no key')
      const faults = faultsOf(ids, kwargs)
      if (faults !== undefined) drop(faults)
      else {
        // Drops null arguments: published rows hold null for arguments that the instruction does not take.
        const given = (kwargs as Arguments[]).map(args =>
          Object.fromEntries(Object.entries(args).filter(([, v]) => v !== null)),
        )
        add({ id: String(key), question: prompt, truth: '', metadata: { ids, kwargs: given } }, place)
      }
    }
  }
  return result
}

function faultsOf(ids: unknown, kwargs: unknown): string | undefined {
  if (!Array.isArray(ids) || ids.length === 0) return 'no instruction_id_list'
  const unknown = ids.find(id => instructions[String(id)] === undefined)
  if (unknown !== undefined) return `unknown instruction ${String(unknown)}`
  if (!Array.isArray(kwargs) || kwargs.length !== ids.length || !kwargs.every(isObject))
    return 'kwargs do not match the instructions'
  return undefined
}

export const ifevalReward: RewardFunction = ({ response, task }) => {
  const { ids, kwargs } = task.metadata as unknown as Asked
  const text = withoutSpecialTokens(response)
  const prompt = task.messages.at(-1)?.content ?? ''
  const followed = ids.map((id, at) => text.trim() !== '' && instructions[id]!(text, kwargs[at]!, prompt))
  const missed = ids.filter((_, at) => !followed[at])
  return {
    score: missed.length === 0 ? 1 : 0,
    answer: followed.map(one => (one ? '1' : '0')).join(''),
    how: 'ifeval-strict',
    why: missed.length === 0 ? `all ${ids.length} instructions followed` : `not followed: ${missed.join(', ')}`,
  }
}

/** Counts the instructions that were followed, and all instructions, in answers as the reward records them. */
export function instructionLevel(answers: readonly string[]): { readonly followed: number; readonly asked: number } {
  const all = answers.join('')
  return { followed: [...all].filter(one => one === '1').length, asked: all.length }
}
