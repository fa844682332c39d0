/** What a server of weights and who fetches them agree on: the list of a version's files, and which names a file may have. */
export const listName = 'files.json'
/** Below a version's directory: its adapters, where some are trained. */
export const adapterFolder = 'adapter'
/** Of a file that is handed out. */
export const plainName = /^\w[\w.-]*$/

/** What the list holds. */
export interface WeightFile {
  readonly name: string
  readonly bytes: number
}
