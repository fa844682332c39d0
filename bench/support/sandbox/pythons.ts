/**
 * The interpreters that are measured: the bare one behind `python3`, which starts fastest, and that of the project's
 * virtual environment, which has numpy and sympy.
 */
import { execFileSync } from 'node:child_process'
import { pythonPath } from '../../../runtime/python'

export interface Pythons {
  readonly base: string
  readonly scientific: string
}

const BASE = "import os, sys; print(os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable))"

export function findPythons(): Pythons {
  const base = execFileSync('python3', ['-I', '-c', BASE], { encoding: 'utf8' }).trim()
  return { base, scientific: pythonPath() }
}
