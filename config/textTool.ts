/** Makes a tool of a TypeScript recipe from one function that returns text. */
import { z } from 'zod'
import type { ToolContext, ToolFunction } from './toolFunction'
import type { ToolSchema } from './toolSchema'

/** A tool with its function, as `toolsOf` takes it. */
export interface TextTool {
  readonly schema: ToolSchema
  readonly run: ToolFunction
}

/**
 * Makes a tool from a function. Its name is the function's, unless `name` says otherwise. `parameters`: a zod object,
 * or its fields; their `.describe()` is what the model reads. The function gets arguments that fit `parameters`, and
 * returns the text that the model reads, or JSON; what it throws becomes an error of the call, which the model reads
 * too.
 * @throws TypeError if the function has no name and `name` is missing
 */
export function textTool<Fields extends z.ZodRawShape>(
  run: (args: z.output<z.ZodObject<Fields>>, context: ToolContext) => unknown,
  {
    description,
    parameters,
    name = run.name,
  }: { readonly description: string; readonly parameters: Fields | z.ZodObject<Fields>; readonly name?: string },
): TextTool {
  if (name === '') throw new TypeError('textTool: the function has no name; give one: textTool(fn, { name, … })')
  const fields = parameters instanceof z.ZodObject ? parameters : z.object(parameters as Fields)
  const { $schema: _, ...schema } = z.toJSONSchema(fields, { io: 'input' })
  return {
    schema: { name, description, parameters: schema },
    run: (args, context) => run(fields.parse(args) as z.output<z.ZodObject<Fields>>, context),
  }
}

/** Returns the fields `tools` and `toolFunctions` of a recipe: `defineRecipe({ …, ...toolsOf(price, search) })`. */
export const toolsOf = (...tools: readonly TextTool[]) => ({
  tools: tools.map(({ schema }) => schema),
  toolFunctions: Object.fromEntries(tools.map(({ schema, run }) => [schema.name, run])),
})
