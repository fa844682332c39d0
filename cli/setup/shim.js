/**
 * Builds the sandbox's C shim with the machine's compiler. Without one the sandbox makes the same frames in Python, slower; so
 * a failure here is a printed line and not an error.
 */
const fs = require('node:fs')
const path = require('node:path')
const { say } = require('./say')

function step(where) {
  const sources = path.join(where.root, where.checkout ? 'sandbox' : 'dist/sandbox', 'zygote/compile.js')
  const { builtShim, compileShim } = fs.existsSync(sources) ? require(sources) : {}
  let tried = false
  return {
    name: 'sandbox',
    says: 'the C shim of warm interpreters',
    isDone: () => process.platform !== 'linux' || tried || !builtShim || builtShim() !== null,
    async run() {
      tried = true
      if ((await compileShim()) === null)
        say('sandbox: no C compiler works here; the sandbox will run without (slower)')
    },
  }
}

module.exports = { step }
