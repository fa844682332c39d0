/**
 * Experiment error-classification: compares two ways to recognise a failed call: by the status that the executor
 * records, and by words in the response, as the code that the paper's authors released does.
 *
 * Every snippet runs in the sandbox through the tool that a model uses. Then RoC (resample on correct) selects from
 * groups in which half of the right rollouts made a valid call whose output looks like an error; a classifier by words
 * counts that call as failed, so RoC drops these rollouts more often.
 */
import { pythonToolIn } from '../../actors/tools/pythonTool'
import { type GroupMember, selectGroup, toolResultText, toolStatusOf } from '../../kernels'
import { openSandbox } from '../../sandbox'
import type { Experiment } from './experiment'
import { suspectCode } from './suspectCode'

/** The released code's rule (its roc.py): the word "error", in any case, in a tool response. */
const looksWrong = (response: string) => /error/i.test(response)

const groupSize = 32
const keep = 16
const groups = 2000

interface Judged {
  readonly what: string
  readonly fails: boolean
  readonly recorded: boolean
  readonly release: boolean
  readonly response: string
}

export const errorClassification: Experiment = async () => {
  const sandbox = await openSandbox({ lanes: 2 })
  const tool = pythonToolIn(sandbox)
  try {
    const judged: Judged[] = []
    for (const { what, code, fails } of suspectCode) {
      const ran = await tool({ code, input: '' }, { timeoutMs: 4000 }, new AbortController().signal)
      const response = toolResultText(ran)
      judged.push({
        what,
        fails,
        recorded: toolStatusOf(ran.status) === 'error',
        release: looksWrong(response),
        response,
      })
    }
    const wrong = (by: 'recorded' | 'release', fails: boolean) =>
      judged.filter(one => one.fails === fails && one[by] !== fails).length
    const [valid, failing] = [judged.filter(one => !one.fails).length, judged.filter(one => one.fails).length]
    const shares = { recorded: keptShare(0), release: keptShare(1) }
    const percent = (share: number) => `${(100 * share).toFixed(1)} %`
    return {
      name: 'error-classification',
      title: 'Code that looks wrong and is not',
      question:
        'RoC prefers right rollouts with fewer failed calls. If a call counts as failed because its output contains the word "error", a rollout that prints a standard error is punished. How often is a call misjudged, and what does that do to the selection?',
      method: [
        `${judged.length} snippets, ${valid} valid and ${failing} failing, run in the sandbox (level ${sandbox.level}) as a model's calls are.`,
        'Recorded status: what the executor records, from the exit of the process. The release: the word "error", in any case, anywhere in the tool response.',
        `Selection: ${groups} groups of ${groupSize}, 16 right; half of these made one call that is valid and prints the word. RoC keeps ${keep} of a group, right ones with a probability that falls with the penalty. A fair selection keeps as many of each half: 50 %.`,
      ],
      findings: [
        `Misjudged: by recorded status ${wrong('recorded', false)} of ${valid} valid and ${wrong('recorded', true)} of ${failing} failing; by the word "error" ${wrong('release', false)} of ${valid} and ${wrong('release', true)} of ${failing}.`,
        `Of the kept right rollouts, those with the valid call that prints the word are ${percent(shares.recorded)} with recorded status and ${percent(shares.release)} when it counts as an error.`,
      ],
      tables: [
        {
          title: 'Each snippet: does it count as a failed call?',
          columns: ['snippet', 'fails', 'recorded status', 'by the word "error"'],
          rows: judged.map(({ what, fails, recorded, release }) => [
            what,
            said(fails),
            marked(recorded, fails),
            marked(release, fails),
          ]),
        },
      ],
      pictures: [
        {
          name: 'kept',
          caption: 'Share of kept right rollouts whose call is valid and prints the word; 0.5 is fair.',
          spec: {
            data: {
              values: Object.entries({ 'recorded status': shares.recorded, 'by the word "error"': shares.release }).map(
                ([rule, share]) => ({ rule, share }),
              ),
            },
            width: 260,
            height: 220,
            mark: 'bar',
            encoding: {
              x: { field: 'rule', type: 'nominal', title: null, axis: { labelAngle: 0 } },
              y: { field: 'share', type: 'quantitative', title: 'share', scale: { domain: [0, 1] } },
            },
          },
        },
      ],
      data: { judged, shares, groups, groupSize, keep },
    }
  } finally {
    await sandbox.close()
  }
}

/**
 * Among the right rollouts that RoC keeps, the share (0 to 1) that made the suspect call, if that call counts as
 * `errors` failed calls.
 */
function keptShare(errors: number): number {
  let suspect = 0
  let positives = 0
  for (let seed = 0; seed < groups; seed++) {
    const members = Array.from({ length: groupSize }, (_, member): GroupMember => {
      const isRight = member < groupSize / 2
      const isSuspect = isRight && member % 2 === 0
      return {
        member,
        reward: isRight ? 1 : 0,
        toolCalls: 2,
        toolErrors: isSuspect ? errors : 0,
        answerTags: 1,
        turns: 3,
      }
    })
    const selection = selectGroup(members, { variant: 'paper', keep, seed })
    if (selection.kind === 'rejected') continue
    for (const { member, reward } of selection.kept) {
      if (reward === 0) continue
      positives++
      if (member % 2 === 0) suspect++
    }
  }
  return suspect / positives
}

const said = (value: boolean) => (value ? 'yes' : 'no')
const marked = (value: boolean, truth: boolean) => (value === truth ? said(value) : `**${said(value)}**`)
