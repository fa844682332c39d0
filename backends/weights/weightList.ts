/** Name under which the weight server serves the list of a version's files to the engines' hosts. */
export const listName = 'files.json'
/** Name of the folder, below a version's directory, that holds its adapters. */
export const adapterFolder = 'adapter'
/** Pattern of the names that a served file may have. */
export const plainName = /^\w[\w.-]*$/

/** Entry of the list: the name and the size of one file of a version. */
export interface WeightFile {
  readonly name: string
  readonly bytes: number
}
