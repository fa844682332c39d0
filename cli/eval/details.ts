/**
 * Computes an evaluation's details from its log: scores by category and instruction, reasons for missing rewards, and
 * problems whose samples agree on an answer that differs from the expected one.
 *
 * in   the facts of `trajectories`        out  counts and shares
 * Invariant: a projection of the log: it changes nothing and can be computed again.
 */
import type { TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { instructionLevel } from '../../recipes/benchmarks'
import { readFacts } from '../../replay/trajectories/summaries'
import type { Journal } from '../../runtime/journal/journal'

export interface EvaluationDetails {
  /**
   * For each category: the mean, over its problems, of each problem's mean reward; and the number of these problems.
   * Only judged answers count. Empty when tasks have no category.
   */
  readonly categories: Readonly<Record<string, { readonly score: number; readonly n: number }>>
  /** Share (0 to 1) of the IFEval instructions in judged answers that were followed; null for other benchmarks. */
  readonly instructionAccuracy: number | null
  /** Number of answers whose reward failed, by reason. */
  readonly unjudged: Readonly<Record<string, number>>
  /** Number of answers with a reward, by the rule that decided the reward, for example `no-answer: 3`. */
  readonly how: Readonly<Record<string, number>>
  /**
   * Problems with three or more judged samples, of which at least two thirds give the same wrong answer. The expected
   * answer may be wrong.
   */
  readonly suspects: readonly {
    readonly task: string
    readonly truth: string
    readonly answer: string
    readonly samples: number
  }[]
}

interface Sample {
  readonly task: string
  readonly truth: string
  readonly category: string | undefined
  reward?: number
  answer?: string
  how?: string
}

export async function detailsOf(journal: Journal): Promise<EvaluationDetails> {
  const samples = new Map<TrajectoryId, Sample>()
  const unjudged: Record<string, number> = {}
  await readFacts(journal, (fact: TrajectoryFact) => {
    if (fact.type === 'rollout.requested') {
      const { id, truth, metadata } = fact.task
      const category = [metadata?.category, metadata?.domain].find(one => typeof one === 'string' && one !== '')
      if (!samples.has(fact.trajectory)) samples.set(fact.trajectory, { task: id, truth, category: category as string })
      return
    }
    const sample = 'trajectory' in fact ? samples.get(fact.trajectory) : undefined
    if (sample === undefined || sample.how !== undefined) return
    if (fact.type === 'reward.failed') {
      sample.how = fact.how
      unjudged[fact.how] = (unjudged[fact.how] ?? 0) + 1
    } else if (fact.type === 'reward.assigned') {
      Object.assign(sample, { reward: fact.reward, answer: fact.answer, how: fact.how })
    }
  })
  const judged = [...samples].filter(([, sample]) => sample.reward !== undefined)
  const answers = judged.flatMap(([, { how, answer }]) => (how === 'ifeval-strict' ? [answer!] : []))
  const { followed, asked } = instructionLevel(answers)
  return {
    categories: categoriesOf(judged.map(([, sample]) => sample)),
    instructionAccuracy: asked === 0 ? null : followed / asked,
    unjudged,
    how: counted(judged.map(([, { how }]) => how!)),
    suspects: suspectsOf(judged),
  }
}

function categoriesOf(samples: readonly Sample[]): EvaluationDetails['categories'] {
  const byCategory = new Map<string, Map<string, number[]>>()
  for (const { category, task, reward } of samples) {
    if (category === undefined) continue
    const tasks = byCategory.get(category) ?? new Map<string, number[]>()
    byCategory.set(category, tasks.set(task, [...(tasks.get(task) ?? []), reward!]))
  }
  return Object.fromEntries(
    [...byCategory]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([category, tasks]) => {
        const means = [...tasks.values()].map(mean)
        return [category, { score: mean(means), n: means.length }]
      }),
  )
}

/**
 * Values of `how` for rewards that compare an answer with the expected one. Only such answers can agree with each
 * other.
 */
const comparing = new Set(['integer', 'unit', 'text', 'math-verify', 'choice', 'exact'])

function suspectsOf(judged: readonly (readonly [TrajectoryId, Sample])[]): EvaluationDetails['suspects'] {
  const groups = grouped(judged)
  return [...groups.values()].flatMap(group => {
    const wrong = ({ answer, reward, how }: Sample) => (answer && reward === 0 && comparing.has(how!) ? [answer] : [])
    const counts = counted(group.flatMap(([, sample]) => wrong(sample)))
    const [most] = Object.entries(counts).sort(([, a], [, b]) => b - a)
    const isOften = most !== undefined && group.length >= 3 && most[1] >= (2 / 3) * group.length
    if (!isOften) return []
    const { task, truth } = group[0]![1]
    return truth === '' ? [] : [{ task, truth, answer: most[0], samples: most[1] }]
  })
}

function grouped(
  judged: readonly (readonly [TrajectoryId, Sample])[],
): Map<string, (readonly [TrajectoryId, Sample])[]> {
  const groups = new Map<string, (readonly [TrajectoryId, Sample])[]>()
  for (const one of judged) {
    const key = groupOf(one[0])
    groups.set(key, [...(groups.get(key) ?? []), one])
  }
  return groups
}

const mean = (values: readonly number[]) => values.reduce((sum, v) => sum + v, 0) / Math.max(1, values.length)

function counted(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
