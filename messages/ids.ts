/**
 * Ids as branded strings and numbers, so that the compiler refuses one kind of id where another is expected.
 *
 * A name within a trajectory is derived from its parent's: `group/member` names a trajectory, `group/member#turn` a
 * turn, `group/member#turn#call#attempt` one attempt of a tool call. Facts have derived keys (identity.ts).
 */
declare const brand: unique symbol
type Brand<T, B extends string> = T & { readonly [brand]: B }

export type RunId = Brand<string, 'RunId'>
export type GroupId = Brand<string, 'GroupId'>
export type TrajectoryId = Brand<string, 'TrajectoryId'>
export type TaskId = Brand<string, 'TaskId'>
export type EngineId = Brand<string, 'EngineId'>
export type ExecutorId = Brand<string, 'ExecutorId'>
/**
 * Sequence number of a published policy. 0 is the policy before the first optimizer step; each completed step adds 1.
 */
export type PolicyVersion = Brand<number, 'PolicyVersion'>
/**
 * Offset of the claim (`partition.claimed`, `learner.claimed`) of the process that decides: a decision of an earlier
 * owner carries a lower epoch.
 */
export type Epoch = Brand<number, 'Epoch'>

const safe = /^[A-Za-z0-9._:-]+$/

function named<T extends string>(kind: string) {
  return (text: string): Brand<string, T> => {
    if (!safe.test(text)) {
      throw new RangeError(`${kind} '${text}': expected one or more characters, only letters, digits and . _ : -`)
    }
    return text as Brand<string, T>
  }
}

export const runId = named<'RunId'>('run id')
/** True if `text` can be the name of a run. */
export const isRunId = (text: string): text is RunId => safe.test(text)
export const groupId = named<'GroupId'>('group id')
export const engineId = named<'EngineId'>('engine id')
export const executorId = named<'ExecutorId'>('executor id')
export const taskId = (text: string): TaskId => text as TaskId
export const policyVersion = (n: number): PolicyVersion => n as PolicyVersion
export const epoch = (offset: number): Epoch => offset as Epoch

export function trajectoryId(group: GroupId, member: number): TrajectoryId {
  return `${group}/${member}` as TrajectoryId
}

/** Splits a trajectory id. @throws RangeError when the text is not `group/member` */
export function partsOf(trajectory: TrajectoryId): { readonly group: GroupId; readonly member: number } {
  const slash = trajectory.lastIndexOf('/')
  const member = Number(trajectory.slice(slash + 1))
  if (slash < 1 || !Number.isInteger(member))
    throw new RangeError(`trajectory id '${trajectory}': expected group/member, such as s1-g0/3`)
  return { group: trajectory.slice(0, slash) as GroupId, member }
}

/** Returns the group of a trajectory id. It runs for every record written, so it avoids the slower `partsOf`. */
export function groupOf(trajectory: TrajectoryId): GroupId {
  const slash = trajectory.indexOf('/')
  for (let i = slash + 1; i < trajectory.length; i++) {
    if (!isDigit(trajectory.charCodeAt(i))) return partsOf(trajectory).group
  }
  return slash < 1 ? partsOf(trajectory).group : (trajectory.slice(0, slash) as GroupId)
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57
export const memberOf = (trajectory: TrajectoryId): number => partsOf(trajectory).member
