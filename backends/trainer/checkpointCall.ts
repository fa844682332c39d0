/**
 * Makes the call Checkpoint of the trainer's process, which answers twice.
 *
 * in   directories of the checkpoint and of its published weights
 * out  first answer: the next call may be made. Second answer: the checkpoint is complete, or the error
 * Invariant: the returned promise and its `saved` settle: with their answers, with the process's own error code, at the
 * deadline, or with `trainer.lost`.
 */
import type { PolicyProcess } from '../policyProcess'
import type { SavedCheckpoint } from './trainer'
import { broken, late, refused } from './trainerErrors'

interface CheckpointEvent extends SavedCheckpoint {
  /** False in the first event: the checkpoint is being written. */
  readonly saved: boolean
  readonly errorCode: string
  readonly errorMessage: string
}

export async function checkpointCall(
  { client, lost }: PolicyProcess,
  request: { readonly directory: string; readonly weights: string },
  timeoutMs: number,
): Promise<{ readonly saved: Promise<SavedCheckpoint> }> {
  const stream = client.stream<object, CheckpointEvent>('Checkpoint')
  let timer: NodeJS.Timeout | undefined
  let begin: () => void = () => {}
  const begun = new Promise<void>(resolve => {
    begin = resolve
  })
  const saved = new Promise<SavedCheckpoint>((resolve, reject) => {
    timer = setTimeout(() => reject(late('Checkpoint', timeoutMs)), timeoutMs)
    stream.on('data', ({ saved: isSaved, manifest, bytes, errorCode, errorMessage }: CheckpointEvent) => {
      if (errorCode !== '') reject(refused({ errorCode, errorMessage }))
      else if (isSaved) resolve({ manifest, bytes })
      else begin()
    })
    // Waits a second, because a process that died reports its reason (`lost`) a moment after its connection broke.
    stream.on('error', error => setTimeout(reject, 1_000, broken('Checkpoint', error)))
    stream.on('end', () => setTimeout(reject, 1_000, broken('Checkpoint', new Error('the stream ended too early'))))
    void lost.then(reject)
  })
  const over = () => {
    clearTimeout(timer)
    stream.cancel()
  }
  saved.then(over, over) // this also handles a rejection that nobody awaits yet
  stream.write(request)
  stream.end()
  await Promise.race([begun, saved])
  return { saved }
}
