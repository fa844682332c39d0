/**
 * The public surface, folder by folder. The package's build turns each name into a getter that loads its folder at
 * first use, so that `require('troupe')` is cheap; ES modules load what they name from `troupe/kernels` and its
 * siblings.
 */
export * from './actors'
export * from './backends'
export * from './kernels'
export * from './messages'
export * from './recipes'
export * from './replay'
export * from './runtime'
export * from './sandbox'
