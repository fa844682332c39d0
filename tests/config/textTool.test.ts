/** A tool in TypeScript is one function that returns text, with a zod object for its arguments. */
import { functionTool } from '../../actors/tools/functionTool'
import { recipes, textTool, toolsOf, z } from '../../recipes'
import { quickstart } from '../../recipes/quickstart'

const add = textTool(({ a, b = 1 }) => `${a + b}`, {
  name: 'add',
  description: 'Adds.',
  parameters: { a: z.number().describe('One.'), b: z.number().optional() },
})

test('its fields become the schema that the model reads, and its text the result; arguments that do not fit are refused', async () => {
  expect(add.schema).toMatchObject({
    name: 'add',
    description: 'Adds.',
    parameters: { type: 'object', properties: { a: { type: 'number', description: 'One.' } }, required: ['a'] },
  })
  const call = (args: Record<string, unknown>) =>
    functionTool(add.schema, add.run)(args, { timeoutMs: 1000 }, new AbortController().signal)
  expect(await call({ a: 2 })).toMatchObject({ status: 'ok', stdout: '3' })
  expect(await call({ a: 'two' })).toMatchObject({ status: 'rejected' })
})

test('toolsOf gives a recipe both of its fields; a function without a name is refused', () => {
  expect(toolsOf(add)).toEqual({ tools: [add.schema], toolFunctions: { add: add.run } })
  expect(() => textTool(() => '', { description: '', parameters: {} })).toThrow('has no name')
  expect(recipes.get('quickstart')).toBe(quickstart)
})
