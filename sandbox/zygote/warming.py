"""Imports and runs, before a zygote serves, what every child then has: modules, their lazy imports, caches.

in   the modules to preload      out  imported modules; nothing that the programs printed is left
Invariant: a preload that cannot be imported ends the zygote with an ImportError that names it. A standard module that
cannot be imported is left out.
"""

import gc
import importlib
import os
import sys

# Modules that a short program is likely to import. An import that fails is left out. Every fork pays for every module
# (a megabyte costs about 0.1 ms), so modules that few programs use are left out; importing one costs those programs 1
# to 4 ms (hashlib, inspect, pickle, subprocess).
STANDARD = """abc ast bisect builtins cmath collections collections.abc contextlib copy copyreg datetime decimal enum
fractions functools gc heapq io itertools json keyword linecache math numbers operator os random re reprlib stat statistics
string struct textwrap threading time token tokenize traceback types typing warnings weakref""".split()

# Formulas that make math-verify's LaTeX parser build its tables, which it does at the first formula of each kind.
# Children inherit these tables.
MATHEMATICS = r"""\frac{1}{2} = 0.5
\frac{3x+1}{2y} = \dfrac{3x+1}{2 y}
11\sqrt{2} = \sqrt{242}
\sqrt[3]{x} = x^{1/3}
2(k+1) = 2k+2
x^2+2x+1 = (x+1)^2
(6,31,-1) = (6,31,-2)
\left(\frac{3}{5},\frac{8}{3}\right) = (1,2)
[0,1) = (2,\infty)
(-\infty,2]\cup[5,8) = (-\infty,2)
\{1,2,3\} = \{3,2,1\}
1,-2 = -2, 1
5 \text{ or } 6 = 6
\text{east} = \text{west}
y=2x+3 = 2x+3=y
x\le 3 = x<3
\frac{\pi}{2} = 90^\circ
50\% = 0.5
10\text{ cm} = 10
\$32{,}000 = 32000
3\frac{1}{2} = 3.5
-\frac{3}{4} = -\frac34
10^{-3} = 2\cdot 3\times 4
3+4i = 4i+3
e^{2x} = \sin x+\cos(x)
\log_2 8 = \ln x
a_{n+1} = \binom{n}{2}
n! = |x|
4210_{5} = 4210
\pm 2 = \pm 3
\begin{pmatrix}1&2\\3&4\end{pmatrix} = \begin{bmatrix}1&2\\3&5\end{bmatrix}"""

WARM = {
    "std": "import math, re, collections\nprint(sum(math.sqrt(i) for i in range(9)), re.sub('a+', 'b', 'caat'))\n"
    "print(f'{1/3:.3f}', sorted({'b': 1, 'a': 2}.items()), collections.Counter('abca'))\n[i * i for i in range(9)]\n",
    "numpy": "import numpy as np\na = np.arange(12.0).reshape(3, 4)\nprint(a @ a.T, a.mean(), np.linalg.norm(a))\n"
    "print(np.random.rand(2).shape, np.linalg.solve(np.eye(3), np.ones(3)), np.sort(a.ravel())[:2])\n",
    "sympy": "import sympy as sp\nx, y = sp.symbols('x y')\nprint(sp.solve(x**2 - 3*x + 2, x), sp.solve([x + y - 3, x - y - 1]))\n"
    "print(sp.simplify(sp.sin(x)**2 + sp.cos(x)**2), sp.factor(x**2 - 1), sp.expand((x + 1)**3), sp.Rational(1, 3))\n"
    "print(sp.diff(x**3, x), sp.integrate(x**2, x), sp.factorint(360), sp.N(sp.pi, 20), sp.sqrt(8))\n",
    "scipy": "import numpy as np\nfrom scipy import integrate, linalg, optimize, special, stats\n"
    "print(optimize.brentq(lambda x: x * x - 2, 0, 2), integrate.quad(lambda x: x * x, 0, 1), special.comb(5, 2, exact=True))\n"
    "print(optimize.linprog([1, 1], A_ub=[[-1, -1]], b_ub=[-1]).status, linalg.det(np.eye(2)), stats.norm.cdf(0.0))\n",
    "networkx": "import networkx as nx\ng = nx.path_graph(4)\nprint(nx.shortest_path(g, 0, 3), nx.is_connected(g))\n",
    "math_verify": f"""
from math_verify import parse, verify
for line in {MATHEMATICS!r}.splitlines():
    try:
        verify(*(parse(f'${{side}}$', parsing_timeout=None) for side in line.split(' = ')), timeout_seconds=None)
    except Exception:
        continue
""",
}
FAILS = "def f():\n    return 1 / 0\nf()\n"


# CPython 3.11 and newer rewrite a function's bytecode for the types that it meets, after a few runs (PEP 659; eight runs
# in 3.11). If that happens here, before the fork, no child has to do it, or to copy the memory page of the bytecode.
REHEARSALS = 12


def warm_up(preload, running, run_call):
    """Imports the modules and runs short programs (WARM), so that every child has their lazy imports and caches.
    `run_call` runs a program as a child does, but for its exit.
    """
    for name in STANDARD:
        try:
            importlib.import_module(name)
        except Exception:
            continue
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ImportError(f"preload of {name} failed: {error}") from error
    running.prepare()
    running.reseed(0)
    gc.collect()
    gc.freeze()  # The programs below collect garbage, as calls do: without this, among all objects of the modules.
    names = [name for name in WARM if name == "std" or any(p.split(".")[0] == name for p in preload)]
    for source in [WARM[name] for name in names] + [WARM["std"], FAILS, "print(1)"] * REHEARSALS:
        run_call(source.encode(), running.run_script, running.SCRIPT)
        run_call(source.encode(), running.run_cell, None)
    sys.stdout.flush()
    sys.stderr.flush()
    for fd in (1, 2):
        os.lseek(fd, 0, os.SEEK_SET)
        os.ftruncate(fd, 0)
    running.linecache.clearcache()
    running.find_numpy_state()
