/**
 * Installs Python packages into a venv and compiles to bytecode what is needed at once.
 *
 * in   a venv's interpreter, pip's arguments, what to compile     out  installed packages
 * uv fetches and unpacks on all cores, pip on one, so uv installs torch in about half the time. But uv reads none of
 * pip's configuration, so pip does the work where TROUPE_PIP_ARGS is set, or where pip is configured with more than
 * uvCanDo lists. If uv fails or cannot run here, a line says so and pip installs instead; its error is the one
 * reported.
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { say } = require('./say')
const { cleanEnv, runTool } = require('./tool')

/**
 * The uv that set-up uses. It lies in a folder of its own, not in the venv: which packages a venv holds must not depend
 * on whether uv or pip installed them.
 */
const uvPackage = 'uv==0.13.9'
const uvFolder = uvPackage.replace('==', '-')

/**
 * Settings of pip that change nothing about which packages are installed, or that are handed to uv (see uvSettings).
 */
const uvCanDo = new Set([
  'cert',
  'config-file',
  'default-timeout',
  'disable-pip-version-check',
  'find-links',
  'no-color',
  'no-index',
  'no-input',
  'no-python-version-warning',
  'progress-bar',
  'quiet',
  'root-user-action',
  'timeout',
  'verbose',
])

/**
 * Translates the output of `pip config list` (lines such as `global.cert='/ca.pem'`).
 * @returns {{args: string[], env: Record<string, string>} | undefined} uv's arguments and environment variables;
 *   undefined if pip has a setting that uv does not know
 */
function uvSettings(listed) {
  const args = []
  const env = {}
  for (const line of listed.split('\n').filter(Boolean)) {
    const [, key, single, double] = /^[^=]*\.([\w-]+)=(?:'(.*)'|"(.*)")$/.exec(line) ?? []
    if (!uvCanDo.has(key)) return undefined
    // pip writes a value as Python does: in double quotes if it contains an apostrophe.
    const value = single ?? double
    // pip writes a list of values with the two characters \n (no line break) between them.
    if (key === 'find-links') for (const one of value.split(/\\n|\s+/).filter(Boolean)) args.push('--find-links', one)
    if (key === 'no-index' && !/^(0|false|no|off)$/i.test(value)) args.push('--no-index')
    if (key === 'cert') env.SSL_CERT_FILE = value
  }
  return { args, env }
}

/**
 * Compiles the modules in the named folders of a venv's packages that have no current bytecode, on all cores: pip would
 * use one. Test suites and most model families of transformers are left out, since they are half of the work.
 */
const compileFolders = `
import compileall, os, re, sys, sysconfig
packages = sysconfig.get_path('purelib')
models = r'transformers/models/(?!auto/|llama/|qwen2/|qwen3/|gemma|mistral/)'
rare = re.compile(re.escape(packages) + r'/(.*/)?(tests/|' + models + ')')
for name in sys.argv[1:]:
    compileall.compile_dir(os.path.normpath(os.path.join(packages, name)), quiet=2, workers=0, rx=rare)`

/**
 * Imports modules, which compiles them and every module that they import, also where PYTHONDONTWRITEBYTECODE is set. A
 * module that cannot be imported is skipped.
 */
const compileImported = `
import importlib, sys
sys.dont_write_bytecode = False
for name in sys.argv[1:]:
    try: importlib.import_module(name)
    except Exception: pass`

/**
 * @returns {Promise<'done' | 'unchanged' | 'broken'>} unchanged: uv was not used, or failed before it installed any
 *   package; broken: uv failed after it had begun to install, so a package may be copied by half
 */
async function installByUv(name, python, args, tool) {
  const listed = spawnSync(python, ['-m', 'pip', 'config', 'list'], {
    encoding: 'utf8',
    timeout: 60_000,
    env: cleanEnv(),
  })
  const settings = listed.status === 0 ? uvSettings(listed.stdout) : undefined
  if (settings === undefined) return 'unchanged'
  const folder = path.join(tool.where.logs, uvFolder)
  const uv = path.join(folder, 'bin/uv')
  const fetchUv = ['-m', 'pip', 'install', '--no-input', '--only-binary', ':all:', '--target', folder, uvPackage]
  try {
    if (!fs.existsSync(uv)) await runTool('uv', python, fetchUv, tool)
    const env = { ...tool.env, ...settings.env }
    await runTool(name, uv, ['pip', 'install', '--python', python, ...settings.args, ...args], { ...tool, env })
    return 'done'
  } catch (error) {
    if (error.ended) throw error
    say(`${name}: uv did not install the packages (${error.message}); pip installs them`)
    // uv prints this line before it installs any package.
    return /^Prepared \d+ package/m.test(error.output ?? '') ? 'broken' : 'unchanged'
  }
}

/**
 * Installs packages, and compiles the folders that `compiles` names ('.', the default, is every package) and what the
 * modules that it names import. Python compiles the rest when it is imported.
 *
 * args: arguments that pip and uv have in common, such as -r FILE, --no-deps. pipArgs: what the user adds to pip's.
 * Rejects with a SetupError, which has `unchanged: true` if it is certain that nothing was installed.
 */
async function install(name, python, args, pipArgs, tool, compiles = { folders: ['.'] }) {
  const uv = pipArgs.length === 0 ? await installByUv(name, python, args, tool) : 'unchanged'
  if (uv === 'done') return compile(name, python, tool, compiles)
  // pip would take a package that uv copied by half for installed, and skip it.
  const again = uv === 'broken' && !args.includes('--force-reinstall') ? ['--force-reinstall'] : []
  const options = ['--no-input', '--no-compile', ...again]
  try {
    await runTool(name, python, ['-m', 'pip', 'install', ...options, ...args, ...pipArgs], tool)
  } catch (error) {
    // pip fetches all packages before it prints this line and installs any.
    error.unchanged = uv === 'unchanged' && !error.output?.includes('Installing collected packages')
    throw error
  }
  await compile(name, python, tool, compiles)
}

/** folders: compiled on all cores. imported: lists of modules, each imported by a process of its own. */
async function compile(name, python, tool, { folders = [], imported = [] }) {
  const run = (what, script, words) => runTool(`${name} ${what}`, python, ['-c', script, ...words], tool)
  if (folders.length > 0) await run('bytecode', compileFolders, folders)
  await Promise.all(imported.map((words, at) => run(`bytecode ${at + 1}`, compileImported, words)))
}

module.exports = { install, uvFolder, uvSettings }
