/**
 * Makes the venv of the trackers' own servers and readers, for the tests of this folder.
 *
 * in   requirements.txt        out  .venv-tracker-servers, or TROUPE_TRACKER_SERVERS_VENV; in it `wandb-reader`, the last
 *      wandb that has a reader of its files in Python
 */
const path = require('node:path')
const { places } = require('../../cli/setup/places')
const { ownVenvStep } = require('../../cli/setup/ownVenv')

const step = ownVenvStep(places(), {
  part: 'tracker servers',
  says: 'MLflow, Phoenix, TensorBoard and Trackio (1.5 GB)',
  version: '1',
  files: [path.join(__dirname, 'requirements.txt')],
  neededMb: 3_000,
  variable: 'TROUPE_TRACKER_SERVERS_VENV',
  folder: 'venv-tracker-servers',
  afterwards: (_python, pip) =>
    pip('wandb reader', '--no-deps', '--target', path.join(step.venv, 'wandb-reader'), 'wandb==0.22.3'),
})

if (!step.isDone()) void step.run()
