/**
 * Exports the package's public names, folder by folder. The build turns each name into a getter that loads its folder
 * at first use, so that `require('troupe')` is cheap; ES modules import from `troupe/kernels` and the other folders.
 */
export * from './actors'
export * from './backends'
export * from './kernels'
export * from './messages'
export * from './recipes'
export * from './replay'
export * from './runtime'
export * from './sandbox'
