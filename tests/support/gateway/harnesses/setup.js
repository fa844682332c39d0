/**
 * Installs the agents of others that the environments suite runs: Python packages in a venv, npm packages inside it.
 *
 * in   requirements.txt, package.json     out  .venv-harnesses, or TROUPE_HARNESSES_VENV; nothing if it is up to date
 */
const fs = require('node:fs')
const path = require('node:path')
const { ownVenvStep } = require('../../../../cli/setup/ownVenv')
const { places } = require('../../../../cli/setup/places')
const { runTool } = require('../../../../cli/setup/tool')

const file = name => path.join(__dirname, name)

function harnesses(where = places()) {
  const step = ownVenvStep(where, {
    part: 'harnesses',
    says: 'litellm, mini-swe-agent, pydantic-ai and smolagents; qwen-code and the SDKs of npm (1 GB)',
    version: '1',
    files: [file('requirements.txt'), file('package.json')],
    neededMb: 1_500,
    variable: 'TROUPE_HARNESSES_VENV',
    folder: 'venv-harnesses',
    compiles: { imported: ['litellm', 'minisweagent.models.litellm_model', 'pydantic_ai', 'smolagents'] },
    async afterwards() {
      const node = path.join(step.venv, 'node')
      fs.mkdirSync(node, { recursive: true })
      fs.copyFileSync(file('package.json'), path.join(node, 'package.json'))
      // ES modules are looked up beside the file that imports them.
      fs.copyFileSync(file('clients.mjs'), path.join(node, 'clients.mjs'))
      await runTool('npm packages', 'npm', ['install', '--no-audit', '--no-fund'], { cwd: node, where })
    },
  })
  return step
}

module.exports = { harnesses }

if (require.main === module) {
  const step = harnesses()
  if (!step.isDone())
    step.run().catch(error => {
      console.error(`${error.message}\n${error.hint ?? ''}`)
      process.exitCode = 1
    })
}
