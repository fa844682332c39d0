/** Format of the list of a version's files, for the server of weights and for its clients. */
export const listName = 'files.json'
/** Folder below a version's directory that holds its adapters. */
export const adapterFolder = 'adapter'
/** Names that a served file may have. */
export const plainName = /^\w[\w.-]*$/

/** One entry of the list. */
export interface WeightFile {
  readonly name: string
  readonly bytes: number
}
