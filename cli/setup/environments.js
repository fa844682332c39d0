/**
 * Installs the sources of tasks and rewards, reasoning-gym and verifiers, in their own venv.
 *
 * in   recipes/environment/python/requirements.txt
 * out  the venv: TROUPE_ENVIRONMENTS_VENV if it is set; else .venv-environments in a checkout; for an installed package
 * venv-environments in ~/.cache/troupe (TROUPE_HOME)
 * runtime/python.ts looks for the venv at the same path (a test compares the two).
 */
const path = require('node:path')
const { ownVenvStep } = require('./ownVenv')

const step = where =>
  ownVenvStep(where, {
    part: 'environments',
    says: 'reasoning-gym and verifiers (0.9 GB)',
    version: '1',
    files: [path.join(where.environments, 'requirements.txt')],
    neededMb: 1_500,
    variable: 'TROUPE_ENVIRONMENTS_VENV',
    folder: 'venv-environments',
    compiles: { imported: [['reasoning_gym', 'verifiers', 'verifiers.v1']] },
  })

module.exports = { step }
