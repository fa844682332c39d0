/**
 * Checks the model's directory without loading the model: config, tokenizer, template, weights, the longest context.
 *
 * in   a recipe        out  the faults
 * Invariant: reads no weights; if the run needs weights, it checks that their files (the shards of an index) exist.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { positionsIn } from '../../actors/run/model'
import { contextFaults, type RecipeConfig } from '../../config'
import { asError } from '../../runtime/errors'
import { error, type Fault, faultsOf } from './fault'

export function modelFaults(config: RecipeConfig, needsWeights: boolean): readonly Fault[] {
  const { model } = config
  const template = templateFaults(model.template)
  if (model.from === 'random') return template
  const directory = resolve(model.path)
  let positions: number | undefined
  const unread = faultsOf('model.path', () => {
    positions = positionsIn(directory)
  })
  const planned = '; for a plan without the model, state its transformers config in model.architecture'
  if (unread.length > 0) return [...unread.map(fault => ({ ...fault, cure: `${fault.cure}${planned}` })), ...template]
  const file = join(directory, 'config.json')
  const contexts = contextFaults(config, positions, file).map(([path, why]) =>
    error('config.invalid', path.join('.'), why, `lower ${path.join('.')}, or use a model with a longer context`),
  )
  return [...contexts, ...template, ...tokenizerFaults(directory), ...(needsWeights ? weightFaults(directory) : [])]
}

function templateFaults(template: string | undefined): readonly Fault[] {
  if (template === undefined || existsSync(template)) return []
  return [
    error(
      'config.no_file',
      'model.template',
      `${resolve(template)} does not exist`,
      'give a file with a chat template (Jinja), or leave model.template out to use the model’s own',
    ),
  ]
}

function tokenizerFaults(directory: string): readonly Fault[] {
  const names = ['tokenizer.json', 'tokenizer.model', 'vocab.json', 'vocab.txt', 'spiece.model']
  if (names.some(name => existsSync(join(directory, name)))) return []
  return [
    error(
      'config.no_model',
      'model.path',
      `${directory} holds no tokenizer (${names[0]})`,
      'copy the tokenizer files of the model into the directory',
    ),
  ]
}

function weightFaults(directory: string): readonly Fault[] {
  const cure = 'copy the weights into the directory; a download that was broken off leaves them incomplete'
  const refuse = (what: string) => [error('config.no_model', 'model.path', what, cure)]
  const files = readdirSync(directory)
  const index = files.find(name => /\.(safetensors|bin)\.index\.json$/.test(name))
  if (index === undefined) {
    if (files.some(name => /\.(safetensors|bin)$/.test(name))) return []
    return refuse(`${directory} holds no weights (*.safetensors or *.bin)`)
  }
  try {
    const { weight_map: map = {} } = JSON.parse(readFileSync(join(directory, index), 'utf8')) as {
      weight_map?: Record<string, string>
    }
    const missing = [...new Set(Object.values(map))].filter(name => !files.includes(name))
    return missing.length === 0
      ? []
      : refuse(
          `${join(directory, index)} names ${missing.join(', ')}, which ${missing.length === 1 ? 'is' : 'are'} not there`,
        )
  } catch (thrown) {
    return refuse(`${join(directory, index)} cannot be read: ${asError(thrown).message}`)
  }
}
