/**
 * Exports of the package's entry `troupe/runtime`: the runtime, and the backends, which older programs import from here
 * because `troupe/backends` did not exist yet.
 */
export * from '../../backends'
export * from '../../runtime'
