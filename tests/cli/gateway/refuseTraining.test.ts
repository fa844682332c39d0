/** A gateway of its own does not take the rollouts of a run away that trains. */
import { claimLearning } from '../../../actors/ownership/claimLearning'
import { refuseTraining } from '../../../cli/gateway/refuseTraining'
import { openTroupe } from '../../../runtime/embed'
import { refused } from '../../support/refusal'

test('the log of a run that trains is refused, that of a gateway is not', async () => {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r' })
  const { journal, fx } = troupe
  await journal.appendTo(0, { type: 'partition.claimed', at: 0, partition: 0, owner: 'gateway-1' })
  await refuseTraining(journal, 'r')
  await claimLearning(journal, fx)
  expect(await refused(refuseTraining(journal, 'r'))).toMatchObject({ code: 'gateway.run_in_training' })
  await troupe.close()
})
