/**
 * Builds the sandbox's C shim with the machine's compiler. Without a compiler the sandbox runs the same serve loop in
 * Python, more slowly and without sessions; so a failure here prints a line and is no error.
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
        say('sandbox: no working C compiler found; the sandbox runs without its C shim (slower)')
    },
  }
}

module.exports = { step }
