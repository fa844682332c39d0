/** Opens the experiment tracker that an address names, for a run. */
import type { TrackerAddress } from '../../config/trackerAddress'
import { mlflowTracker } from './mlflow/mlflow'
import type { Tracker } from './runPoints'
import { tensorboardTracker } from './tensorboard'
import { trackioTracker } from './trackio'
import { wandbTracker } from './wandb/wandb'

/** @throws TroupeError process.no_wandb for a wandb address before `troupe setup wandb` */
export async function openTracker(address: TrackerAddress, run: string): Promise<Tracker> {
  switch (address.kind) {
    case 'tensorboard':
      return tensorboardTracker(address.directory, run)
    case 'wandb':
      return wandbTracker(run, address)
    case 'mlflow':
      return mlflowTracker(address.url, run, address)
    case 'trackio':
      return trackioTracker(address.url, run, address)
  }
}
