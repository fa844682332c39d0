/**
 * Formats a recomputed optimizer step beside the recorded one, as lines for a terminal.
 */
import { decisive, type LearnedStep } from '../../../replay/learning/learnedStep'
import { painter } from '../../io/terminal'

const paint = painter(process.stdout)

/**
 * Formats the comparison. `check`: largest allowed relative difference; a metric of `decisive` (those that must agree)
 * with a larger difference is printed red.
 */
export function learnedLines(result: LearnedStep, check: number): string[] {
  const { step, checkpoint, trajectories, recorded, recomputed, differences, members, sameWeights, agrees } = result
  const out = [`step ${step}: ${trajectories} trajectories, from checkpoint ${checkpoint}`]
  for (const name of Object.keys(differences)) {
    const far = decisive.has(name) && differences[name]! > check
    const row = `  ${name.padEnd(14)} ${String(recorded[name]).padEnd(24)} ${String(recomputed[name]).padEnd(24)} ${differences[name]!.toExponential(1)}`
    out.push(far ? paint('red', row) : row)
  }
  out.push(
    members.length === 0
      ? '  members        as selected today'
      : paint(
          'red',
          `  members        selected otherwise today: ${members.slice(0, 8).join(', ')}${members.length > 8 ? ', …' : ''}`,
        ),
  )
  const weights =
    sameWeights === null ? 'no digest to compare with' : sameWeights ? 'the same, bit by bit' : 'not bit-equal'
  out.push(`  weights        ${weights}`)
  out.push(agrees ? paint('green', `  agrees within ${check}`) : paint('red', `  does not agree within ${check}`))
  return out
}
