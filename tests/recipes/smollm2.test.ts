/** smollm2: demonstrations that the real tool agrees with, and what they leave out. */
import { pythonToolIn } from '../../actors/tools/pythonTool'
import { recipeSchema } from '../../config'
import { parseToolCalls, toolResultText } from '../../kernels'
import { pcg32 } from '../../kernels/random'
import { smollm2 } from '../../recipes/smollm2'
import { demonstration, repairShare } from '../../recipes/smollm2/demonstrations'
import { exercise } from '../../recipes/smollm2/exercises'
import { families } from '../../recipes/smollm2/families'
import { openSandbox } from '../../sandbox'

const many = Array.from({ length: 150 }, (_, index) => demonstration(index, 7))

test('what a demonstration says that the tool answered is what the tool answers', async () => {
  const sandbox = await openSandbox({ lanes: 2 })
  const tool = pythonToolIn(sandbox)
  try {
    for (const { repairs, messages } of many) {
      const turns = messages.slice(1, -1)
      expect(turns).toHaveLength(repairs ? 4 : 2)
      for (let at = 0; at < turns.length; at += 2) {
        const [call] = parseToolCalls(turns[at]!.content).calls
        if (call?.kind !== 'call') throw new Error(`no call: ${turns[at]!.content}`)
        const ran = await tool(call.arguments, { timeoutMs: 10_000 }, new AbortController().signal)
        expect(turns[at + 1]).toEqual({ role: 'tool', content: toolResultText(ran) })
        expect(ran.status).toBe(repairs && at === 0 ? 'error' : 'ok')
      }
      const printed = turns.at(-1)!.content.replace('Tool call success\nstdout: ', '')
      expect(messages.at(-1)).toEqual({ role: 'assistant', content: `<answer>\\boxed{${printed}}</answer>` })
    }
  } finally {
    await sandbox.close()
  }
}, 120_000)

test('about the stated share of them mends a failed call', () => {
  const share = Array.from({ length: 2000 }, (_, index) => demonstration(index, 3)).filter(d => d.repairs).length / 2000
  expect(Math.abs(share - repairShare)).toBeLessThan(0.03)
})

test('exercises show single uses of Python, none of a family that is trained on', () => {
  const random = pcg32(1)
  const shown = Array.from({ length: 500 }, () => exercise(random))
  expect(new Set(shown.map(({ question }) => question.replace(/[\d."]+/g, '#'))).size).toBeGreaterThan(20)
  const names = families.map(({ name }) => name)
  expect(names).not.toHaveLength(0)
  for (const { question, expression } of shown) {
    expect(`${question} ${expression}`).not.toMatch(/gcd|divisor|lcm|multiple of|prime|factors|bin\(|bits|solve/i)
  }
})

test('its numbers hold together', () => {
  expect(recipeSchema.safeParse(smollm2.config).success).toBe(true)
})
