/** A tool's schema as the model and the chat template see it. */
export interface ToolSchema {
  readonly name: string
  readonly description: string
  /** JSON schema of the tool's arguments. */
  readonly parameters: Readonly<Record<string, unknown>>
}
