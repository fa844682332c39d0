/**
 * Opens the experiment tracker that an address names, for a run. Addresses of the kind otlp are not handled here:
 * otlp/exportTraces.ts sends traces to them.
 */
import type { TrackerAddress } from '../../config/trackerAddress'
import { mlflowTracker } from './mlflow/mlflow'
import type { Tracker } from './runPoints'
import { tensorboardTracker } from './tensorboard'
import { trackioTracker } from './trackio'
import { wandbTracker } from './wandb/wandb'

export type PointTracker = Exclude<TrackerAddress, { kind: 'otlp' }>

/**
 * @throws TroupeError process.no_wandb for a wandb address before `troupe setup wandb`; for a directory of TensorBoard
 * the error of the file system
 */
export async function openTracker(address: PointTracker, run: string): Promise<Tracker> {
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
