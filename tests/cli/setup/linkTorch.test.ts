/** torch is linked from the main venv into that of an optional part, or left to pip. */
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const { linkTorch } = require('../../../cli/setup/linkTorch') as {
  linkTorch(from: string, to: string, requirements: string): number
}

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-link-torch-'))
})
afterEach(() => rmSync(home, { recursive: true }))

const packages = (venv: string, python = 'python3.11') => join(home, venv, 'lib', python, 'site-packages')
function put(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

/** Writes a distribution of one module, whose RECORD also names a program in bin. */
function distribution(name: string, version: string, module: string): void {
  const record = `${name}-${version}.dist-info/RECORD`
  put(join(packages('main'), module), name)
  put(join(home, 'main/bin', name), 'program')
  put(join(packages('main'), record), `${module},sha256=x,5\n../../../bin/${name},sha256=x,7\n${record},,\n`)
}

function link(pin: string, python?: string): number {
  rmSync(join(home, 'part'), { recursive: true, force: true })
  mkdirSync(packages('part', python), { recursive: true })
  put(join(home, 'requirements.txt'), `numpy==2\ntorch==${pin}\n`)
  return linkTorch(join(home, 'main'), join(home, 'part'), join(home, 'requirements.txt'))
}

const inode = (venv: string, file: string) => statSync(join(packages(venv), file)).ino

test('torch and its libraries are the same files in both venvs, and nothing else is', () => {
  distribution('torch', '2.13.0', 'torch/__init__.py')
  distribution('nvidia_cublas', '13.1.0', 'nvidia/cublas.so')
  distribution('numpy', '2', 'numpy/__init__.py')
  expect(link('2.13.0')).toBe(2)
  for (const file of ['torch/__init__.py', 'nvidia/cublas.so', 'torch-2.13.0.dist-info/RECORD'])
    expect(inode('part', file)).toBe(inode('main', file))
  expect(existsSync(join(packages('part'), 'numpy'))).toBe(false)
  expect(existsSync(join(home, 'part/bin'))).toBe(false)
})

test("a torch built for CPUs is the pinned version, as it is to pip; another version, another Python's or none is left to pip", () => {
  expect(link('2.13.0')).toBe(0)
  distribution('torch', '2.13.0+cpu', 'torch/__init__.py')
  expect(link('2.14.1')).toBe(0)
  expect(link('2.13.0', 'python3.12')).toBe(0)
  expect(link('2.13.0')).toBe(1)
})

test('where a file cannot be linked nothing stays behind', () => {
  distribution('torch', '2.13.0', 'torch/__init__.py')
  distribution('triton', '3', 'triton/__init__.py')
  rmSync(join(packages('main'), 'triton/__init__.py'))
  expect(link('2.13.0')).toBe(0)
  expect(existsSync(join(packages('part'), 'torch/__init__.py'))).toBe(false)
  expect(existsSync(join(packages('part'), 'torch-2.13.0.dist-info/RECORD'))).toBe(false)
})
