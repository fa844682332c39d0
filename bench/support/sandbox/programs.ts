/**
 * Programs whose rate is measured. Each call has its own number, which its output must show: a result that is lost,
 * doubled or given to another call is detected.
 */
export interface Workload {
  readonly name: 'trivial' | 'wrapper' | 'numpy' | 'sympy'
  /** Source code of the program; `{n}` stands for the call's number. */
  readonly program: string
  readonly prints: (n: number) => string
}

/**
 * Program like those that rStar2 sends: imports, the code in a string, and the value of its last expression printed.
 */
const WRAPPER = `
import ast, bisect, collections, contextlib, copy, functools, heapq, io, itertools, json, math, operator, random, re, string, sys, traceback
source = "x = {n}\\ny = math.gcd(x, 12)\\nx * 2"
tree = ast.parse(source)
last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
names = {"math": math, "__name__": "__main__"}
try:
    exec(compile(tree, "<cell>", "exec"), names)
    if last is not None:
        print(repr(eval(compile(last, "<cell>", "eval"), names)))
except Exception:
    traceback.print_exc()
    sys.exit(1)
`

export const workloads: Readonly<Record<Workload['name'], Workload>> = {
  trivial: { name: 'trivial', program: 'print({n})', prints: n => `${n}\n` },
  wrapper: { name: 'wrapper', program: WRAPPER, prints: n => `${2 * n}\n` },
  numpy: {
    name: 'numpy',
    program: 'import numpy as np\nprint(int(np.arange(10).sum()) + {n})',
    prints: n => `${45 + n}\n`,
  },
  sympy: {
    name: 'sympy',
    program: "import sympy\nx = sympy.Symbol('x')\nprint((x + {n}).subs(x, 1))",
    prints: n => `${n + 1}\n`,
  },
}

export const codeOf = ({ program }: Workload, n: number): string => program.replaceAll('{n}', String(n))
