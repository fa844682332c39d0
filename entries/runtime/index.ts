/**
 * What the package exports as `troupe/runtime`: the runtime, and the backends under the name that they had before
 * `troupe/backends` existed, so that earlier imports go on working.
 */
export * from '../../backends'
export * from '../../runtime'
