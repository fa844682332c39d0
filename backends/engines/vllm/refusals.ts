/** Errors of calls that a vLLM server cannot carry out: it was started without an option, or has no weights. */
import type { PolicyVersion } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'

/**
 * Error for a policy version without adapters on a server that loads adapters: its merged weights, in place of the
 * adapters' base model, would change what all later adapters do.
 */
export const adaptersOnly = (url: string, version: PolicyVersion): TroupeError =>
  new TroupeError('engine.no_updates', {
    boundary: 'engine',
    retriable: false,
    message: `version ${version} was published without LoRA adapters, but the vLLM server at ${url} was started to load adapters`,
    hint: 'start the server without --enable-lora, with VLLM_SERVER_DEV_MODE=1: then it loads merged weights',
  })

export const noUpdates = (url: string): TroupeError =>
  new TroupeError('engine.no_updates', {
    boundary: 'engine',
    retriable: false,
    message: `the vLLM server at ${url} cannot load new weights: it runs without its development endpoints`,
    hint: 'start the server with VLLM_SERVER_DEV_MODE=1 in its environment, where only you can reach it',
  })

export const noSleep = (url: string): TroupeError =>
  new TroupeError('engine.no_sleep', {
    boundary: 'engine',
    retriable: false,
    message: `the vLLM server at ${url} cannot free its memory`,
    hint: 'start the server with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1',
  })

export const noWeights = (url: string): TroupeError =>
  new TroupeError('engine.no_weights', {
    boundary: 'engine',
    retriable: true,
    message: `the vLLM server at ${url} discarded its weights when it fell asleep, and none were published to load`,
    hint: 'restart the server: it loads its weights again when it starts',
  })
