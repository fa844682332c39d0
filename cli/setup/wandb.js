/**
 * Installs Weights & Biases' own package in its own venv, for `troupe track --to wandb:…`.
 *
 * in   replay/tracking/wandb/python/requirements.txt
 * out  the venv: TROUPE_WANDB_VENV if it is set; else .venv-wandb in a checkout; for an installed package
 * venv-wandb in ~/.cache/troupe (TROUPE_HOME)
 * runtime/python.ts looks for the venv at the same path (a test compares the two).
 */
const path = require('node:path')
const { ownVenvStep } = require('./ownVenv')

const step = where =>
  ownVenvStep(where, {
    part: 'wandb',
    says: "Weights & Biases' package (0.2 GB)",
    version: '1',
    files: [path.join(where.wandb, 'requirements.txt')],
    neededMb: 400,
    variable: 'TROUPE_WANDB_VENV',
    folder: 'venv-wandb',
  })

module.exports = { step }
