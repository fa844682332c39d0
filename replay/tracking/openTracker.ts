/** Opens the experiment tracker (TensorBoard or MLflow) that an address names, for a run. */
import type { TrackerAddress } from '../../config/trackerAddress'
import { mlflowTracker } from './mlflow/mlflow'
import type { Tracker } from './runPoints'
import { tensorboardTracker } from './tensorboard'

export async function openTracker(address: TrackerAddress, run: string): Promise<Tracker> {
  if (address.kind === 'tensorboard') return tensorboardTracker(address.directory, run)
  return mlflowTracker(address.url, run, address)
}
