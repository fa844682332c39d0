/**
 * Reads the reward that a verifier wrote: reward.json (a number, or an object of numbers), else reward.txt (a number).
 *
 * in   a directory with what the verifier left in /logs/verifier        out  rewards by name; `reward` is the main one
 * Invariant: a value that is not a finite number is an error, never a reward; but in reward.json's object true and
 * false count as 1 and 0. The caller reads the files when all processes of the environment are dead.
 */
import { lstatSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { TroupeError } from '../../runtime/errors'
import { excerpt } from '../../runtime/secrets/knownSecrets'

export type Rewards = Readonly<Record<string, number>>

const mostBytes = 1024 * 1024

/**
 * Reads the reward files in a directory. @throws TroupeError task.no_reward if there are none, task.bad_reward if one
 * cannot be used
 */
export function readRewards(directory: string): Rewards {
  const json = read(join(directory, 'reward.json'))
  if (json !== undefined) return fromJson(json)
  const text = read(join(directory, 'reward.txt'))
  if (text === undefined)
    throw new TroupeError('task.no_reward', {
      boundary: 'environment',
      retriable: false,
      message: 'the verifier wrote neither /logs/verifier/reward.json nor /logs/verifier/reward.txt',
      hint: "the task's test script (tests/test.sh) has to write one of them",
    })
  const value = text.trim() === '' ? Number.NaN : Number(text.trim())
  if (!Number.isFinite(value)) throw bad(`reward.txt holds no number: ${excerpt(text.trim())}`)
  return { reward: value }
}

function fromJson(text: string): Rewards {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw bad(`reward.json is not JSON: ${excerpt(text)}`, cause)
  }
  const rewards = typeof value === 'number' ? { reward: value } : value
  if (typeof rewards !== 'object' || rewards === null || Array.isArray(rewards))
    throw bad('reward.json: expected a number or an object of numbers')
  for (const [name, reward] of Object.entries(rewards)) {
    // JSON has no infinity, but 1e999 is read as one. Harbor takes true for 1, as Python does.
    if (typeof reward !== 'boolean' && (typeof reward !== 'number' || !Number.isFinite(reward)))
      throw bad(`reward.json: ${name} is not a finite number`)
  }
  return Object.fromEntries(Object.entries(rewards).map(([name, reward]) => [name, Number(reward)]))
}

/** Reads a reward file; undefined if none exists. @throws task.bad_reward if it is no regular file of at most 1 MiB */
function read(file: string): string | undefined {
  const info = lstatSync(file, { throwIfNoEntry: false })
  if (info === undefined) return undefined
  if (!info.isFile() || info.size > mostBytes)
    throw bad(`${file.split('/').pop()} is not a regular file of at most 1 MiB`)
  return readFileSync(file, 'utf8')
}

const bad = (message: string, cause?: unknown) =>
  new TroupeError('task.bad_reward', {
    boundary: 'environment',
    retriable: false,
    message,
    ...(cause ? { cause } : {}),
  })
