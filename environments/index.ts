/** Public surface of environments: Harbor tasks, and the drivers that run them (docs/tasks.md). */
export { buildDockerImage } from './docker/buildImage'
export { DockerDriver, dockerCapabilities, dockerDriver, dockerMissing } from './docker/dockerDriver'
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
export { openStore, type Store } from './drivers/store'
export { type BuildOptions, buildImage } from './images/buildImage'
export { importImage } from './images/importImage'
export { type Need, needsOf } from './tasks/requirements'
export { type Agent, type RunTaskOptions, runTask, type StepResult, type TaskResult } from './tasks/runTask'
export { type ImageSource, loadTask, type Task, type TaskStep } from './tasks/task'
