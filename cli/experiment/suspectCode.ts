/**
 * Lists Python snippets on which a classifier by words may err: valid code, most of it with output that looks like an
 * error, and failing code, some of it with output that looks fine.
 */
export interface SuspectCode {
  readonly what: string
  readonly code: string
  /** True if running the snippet is a failed call. */
  readonly fails: boolean
}

export const suspectCode: readonly SuspectCode[] = [
  // Valid code; most of it has text or output that looks like an error.
  { what: 'prints a relative error', code: "print('relative error:', 1e-9)", fails: false },
  { what: 'names a variable error', code: 'error = 3 - 2.5\nprint(f"error = {error}")', fails: false },
  {
    what: 'catches an exception',
    code: 'try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    print("caught", error)',
    fails: false,
  },
  {
    what: 'prints a traceback that it caught',
    code: 'import traceback\ntry:\n    int("x")\nexcept ValueError:\n    print(traceback.format_exc())',
    fails: false,
  },
  {
    what: 'warns on stderr',
    code: 'import warnings\nwarnings.warn("this is an error estimate")\nprint(4)',
    fails: false,
  },
  {
    what: 'writes Error to stderr itself',
    code: 'import sys\nprint("Error: none", file=sys.stderr)\nprint(5)',
    fails: false,
  },
  { what: 'ends by sys.exit(0)', code: 'import sys\nprint(7)\nsys.exit(0)', fails: false },
  {
    what: 'prints what the tool says of a failure',
    code: 'print("Tool call failure\\nreason: exit code 1")',
    fails: false,
  },
  {
    what: 'asserts that it raises',
    code: 'try:\n    [].pop()\nexcept IndexError:\n    print("IndexError as expected")',
    fails: false,
  },
  {
    what: 'computes a standard error',
    code: 'import statistics\nx = [1, 2, 4]\nprint("standard error", statistics.stdev(x) / 3 ** 0.5)',
    fails: false,
  },
  {
    what: 'a root-mean-square error',
    code: 'e = [1, -1, 2]\nprint("RMS error", (sum(v * v for v in e) / 3) ** 0.5)',
    fails: false,
  },
  { what: 'prints nothing', code: 'x = 1 + 1\n_ = x', fails: false },
  {
    what: 'an error-correcting code',
    code: 'bits = [1, 0, 1]\nprint("error-correcting parity:", sum(bits) % 2)',
    fails: false,
  },
  { what: 'a string that holds an exception', code: 'print(repr(ValueError("bad value")))', fails: false },
  {
    what: 'suppresses an exception',
    code: 'import contextlib\nwith contextlib.suppress(KeyError):\n    {}["a"]\nprint("no error left")',
    fails: false,
  },
  {
    what: 'a loop that retries',
    code: 'for n in (0, 2):\n    try:\n        print(8 / n)\n    except ZeroDivisionError:\n        print("error, again")',
    fails: false,
  },
  // Failing code; the first snippets print text that looks fine.
  { what: 'ends by sys.exit(3), silent', code: 'import sys\nprint("the answer is 42")\nsys.exit(3)', fails: true },
  { what: 'os._exit(1) after an answer', code: 'import os\nprint("done", flush=True)\nos._exit(1)', fails: true },
  {
    what: 'reads from address 0',
    code: 'import ctypes\nprint("ok", flush=True)\nctypes.string_at(0)',
    fails: true,
  },
  { what: 'raises after it printed success', code: 'print("Tool call success")\nraise ValueError("no")', fails: true },
  { what: 'raises an exception without a message', code: 'raise StopIteration', fails: true },
  {
    what: 'an exception with a silent name',
    code: 'class Done(Exception):\n    pass\nraise Done("all fine")',
    fails: true,
  },
  { what: 'takes too much memory', code: 'x = bytearray(8 * 2 ** 30)\nprint("allocated")', fails: true },
  { what: 'recurses without end', code: 'def f():\n    return f()\nf()', fails: true },
  { what: 'a missing bracket', code: 'print((1 + 2)', fails: true },
  { what: 'an unknown name', code: 'print(total)', fails: true },
  { what: 'an unknown module', code: 'import a_module_that_is_not_there', fails: true },
  { what: 'reads input that is not there', code: 'print(input())', fails: true },
]
