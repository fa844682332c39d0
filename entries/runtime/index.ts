/**
 * Exports of the package's entry `troupe/runtime`: the runtime, and also the backends, since programs written before
 * `troupe/backends` existed import them from here.
 */
export * from '../../backends'
export * from '../../runtime'
