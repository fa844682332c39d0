/**
 * Runs the grouper (RoC) on rollouts and rewards of your own: of each group of eight it keeps four and prints their
 * advantages; it rejects a group whose rewards are all equal.
 */
const { grouper, oldestOpenGroup, rewardedRollout } = require('troupe/actors')
const { openTroupe } = require('troupe/runtime')

const groupSize = 8
const groups = [
  { group: 'mixed', rewards: [1, 1, 1, 1, 1, 1, 0, 0], errors: [0, 0, 0, 2, 2, 2, 0, 1] },
  { group: 'solved', rewards: [1, 1, 1, 1, 1, 1, 1, 1], errors: [0, 0, 0, 0, 0, 0, 0, 0] },
]
const rollouts = groups.flatMap(({ group, rewards, errors }, i) =>
  rewards.map((reward, member) => {
    const counts = { toolCalls: 2, toolErrors: errors[member], answerTags: 1, turns: 3 }
    return { group, member, groupSize, reward, ...counts, order: i * groupSize + member }
  }),
)

async function main() {
  const troupe = await openTroupe({ bus: 'memory:', run: 'rewards', topics: { trajectories: 'acme.rewards' } })
  const feeds = [{ topic: 'trajectories', from: 'committed' }]
  const selection = { variant: 'paper', keep: groupSize / 2 }
  const behaviour = grouper({ runSeed: 7, selection })
  await troupe.host({ behaviour, feeds, oldestOpen: oldestOpenGroup })
  await troupe.journal.append(rollouts.flatMap(rollout => rewardedRollout(rollout)))
  let open = groups.length
  for await (const { message: fact } of troupe.entries(['trajectories'])) {
    if (fact.type === 'group.rejected') console.log(`${fact.group}: rejected, ${fact.reason}`)
    if (fact.type === 'group.selected') {
      for (const kept of fact.kept) console.log(`${fact.group}/${kept.member}: ${kept.advantage.toFixed(3)}`)
    }
    if (/^group\.(selected|rejected)$/.test(fact.type) && --open === 0) break
  }
  await troupe.close()
}
main()
