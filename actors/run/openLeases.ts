/**
 * Opens the GPU leases of a process: plans which GPUs its engines and its trainer get, by its role in the run.
 *
 * in   a run's options        out  leases for the supervisors of engines and trainer
 * Invariant: a plan that does not fit the machine is refused here, before this process makes any part of the run. A
 * process that starts neither an engine of its own nor a trainer does not look for GPUs.
 */
import { visibleDevices, visibleVariable } from '../../backends/visibleDevices'
import { type DeviceNeeds, deviceNeeds, devicePlan } from '../../config/devicePlan'
import { type DeviceLeases, deviceLeases, type LeaseGroup } from './deviceLeases'
import type { RunOptions } from './run'

/** Supervisor of each group of leases, as tree.ts names it. */
const supervisors: Readonly<Record<LeaseGroup, string>> = { engines: 'inference', trainer: 'learning' }

export type OnLease = (actor: string, devices: readonly string[]) => void

/**
 * Opens the leases. `onLease` is called with an actor's path and its GPUs whenever they change.
 * @throws TroupeError config.devices if the recipe does not fit the GPUs; process.no_devices if they cannot be counted
 */
export async function openLeases(options: RunOptions, onLease?: OnLease): Promise<DeviceLeases> {
  const needs = needsOf(options)
  const devices = needs.engines + needs.ranks === 0 ? [] : (options.devices ?? (await visibleDevices()))
  const plan = devicePlan(options.config, { ...needs, gpus: devices.length })
  return deviceLeases({
    plan,
    devices,
    variable: visibleVariable(),
    onChange: ({ name, group }, names) => onLease?.(`root/${supervisors[group]}/${name}`, names),
  })
}

function needsOf({ config, role = 'all', learns, startEngine }: RunOptions): Omit<DeviceNeeds, 'gpus'> {
  const { engines, ranks } = deviceNeeds(config)
  const generates = (role === 'all' || role === 'inference') && startEngine === undefined
  const trains = learns && (role === 'all' || role === 'learner')
  return { engines: generates ? engines : 0, ranks: trains ? ranks : 0 }
}
