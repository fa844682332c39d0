/** Public surface of environments: Harbor tasks, and the drivers that run them (docs/tasks.md). */
export { buildDockerImage } from './docker/buildImage'
export { DockerDriver, dockerDriver, dockerMissing } from './docker/dockerDriver'
export type {
  DriverCapabilities,
  DriverName,
  Environment,
  EnvironmentDriver,
  EnvironmentLimits,
  EnvironmentSpec,
  ExecRequest,
  ExecResult,
  ExecStatus,
  NetworkMode,
  Snapshot,
} from './drivers/driver'
export { type DriverOptions, KeptDriver } from './drivers/keptDriver'
export { localCapabilities, localDriver } from './drivers/local'
export { ociCapabilities, ociDriver, ociMissing } from './drivers/oci'
export { machineMissing, probe as probeEnvironments } from './drivers/probe'
export { hasSnapshot, openStore, type Store, snapshotsRoot, storeAt } from './drivers/store'
export { type BuildOptions, buildImage } from './images/buildImage'
export { importImage } from './images/importImage'
export { type DriverHere, driverHere } from './rollouts/driverHere'
export { endedSteps, judgeStep } from './rollouts/endStep'
export { directoryDigest, imageOf, type PreparedTask } from './rollouts/prepareTask'
export { RolloutEnvironments, type RolloutEnvironmentsOptions } from './rollouts/rolloutEnvironments'
export { boundSnapshots } from './snapshots/bound'
export { type Manifest, type ManifestEntry, readManifest } from './snapshots/manifest'
export { type TaskOverrides, withOverrides } from './tasks/overrides'
export { type Need, needsOf, rolloutRefusals, unenforcedLimits } from './tasks/requirements'
export {
  type Agent,
  environmentSpec,
  type RunTaskOptions,
  runTask,
  type StepResult,
  type TaskResult,
} from './tasks/runTask'
export { goOn, isTooLow, taskRewards } from './tasks/steps'
export { type ImageSource, loadTask, type Task, type TaskStep } from './tasks/task'
export { usualDriver } from './tasks/usualDriver'
export { verifyStep } from './tasks/verify'
export { bashTool, editorTool, environmentTools, mcpTool, submitTool } from './tools/schemas'
