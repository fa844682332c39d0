/** The recipes for one GPU: what they state of themselves holds, and a pair differs in its selection alone. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkRecipe } from '../../cli/check/checkRecipe'
import { recipeSchema } from '../../config'
import { estimate } from '../../config/estimate/estimate'
import { oneGpu } from '../../recipes/oneGpu'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { makeTinyModel } from '../support/tinyModel'

jest.setTimeout(180_000)

const configs = [...oneGpu].map(([name, recipe]) => parseConfig(recipeSchema, recipe.config, name))

test.each(configs)('$name fits one GPU by the estimate', config => {
  const { model, hardware } = config
  if (model.from !== 'directory' || hardware === undefined) throw new Error('no architecture or no hardware')
  expect(hardware.gpus).toBe(1)
  expect(estimate(config, model.architecture!, hardware).faults).toEqual([])
})

test('each passes `troupe check` where its model and its data exist', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-one-gpu-test-'))
  try {
    const model = join(folder, 'model')
    await makeTinyModel(model, { config: { max_position_embeddings: 20_480 } })
    const problems = (name: string, from: number) => {
      const file = join(folder, name)
      const row = (_: unknown, k: number) =>
        JSON.stringify({ id: `${from + k}`, problem: `${from + k} and 1?`, answer: `${from + k + 1}` })
      writeFileSync(file, Array.from({ length: 1319 }, row).join('\n'))
      return file
    }
    const data = [`data.file=${problems('train.jsonl', 0)}`, `data.evaluationFile=${problems('test.jsonl', 5000)}`]
    // What starts the server is not looked for: vLLM may not be set up yet.
    const set = [`model.path=${model}`, ...data, `engine.launch.command=["${process.execPath}"]`]
    for (const name of oneGpu.keys()) {
      const { faults, said } = await checkRecipe(name, { set, learns: true })
      expect({ name, faults }).toEqual({ name, faults: [] })
      expect(said).toContain('1319 tasks')
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('the twin without RoC samples as many rollouts, trains on all of them, and differs in nothing else', () => {
  for (const config of configs.filter(one => one.name.endsWith('-grpo'))) {
    const roc = configs.find(one => `${one.name}-grpo` === config.name)!
    expect(config.selection).toMatchObject({ variant: 'none', keep: config.rollout.groupSize })
    expect(roc.selection).toMatchObject({ variant: 'paper', keep: config.rollout.groupSize / 2 })
    expect({ ...config, name: '', selection: null }).toEqual({ ...roc, name: '', selection: null })
  }
})

test('every GSM8K recipe is scored on all 1,319 test problems, greedily, by the strict rule', () => {
  const gsm8k = configs.filter(config => config.name.startsWith('gsm8k-'))
  expect(gsm8k).toHaveLength(4)
  for (const { evaluation, reward } of gsm8k) {
    expect(evaluation).toMatchObject({ problems: 1319, samples: 1, temperature: 0 })
    expect(reward).toMatchObject({ place: 'hashes', literal: true })
  }
})

test('a problem is asked with the rule for its answer, which is what the reward reads', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-one-gpu-test-'))
  try {
    const file = join(folder, 'gsm8k.jsonl')
    writeFileSync(file, `${JSON.stringify({ id: 'a', problem: 'Two and two?', answer: '4' })}\n`)
    const recipe = oneGpu.get('gsm8k-qwen2.5-0.5b')!
    const changes = { data: { ...recipe.config.data, file, evaluationFile: file }, evaluation: { problems: 1 } }
    const config = parseConfig(recipeSchema, { ...recipe.config, ...changes }, 'the recipe')
    const { messages, truth } = (await recipe.tasks(config)).train(0)
    expect(messages).toHaveLength(1)
    expect(messages[0]!.content).toMatch(/^Two and two\?\n\n.*on the last line, as #### and the number\.$/)
    expect(truth).toBe('4')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
