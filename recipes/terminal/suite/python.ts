/** Python tasks of the suite: a small module with a bug, and hidden tests. */
import type { SuiteTask } from './task'

interface Bug {
  readonly name: string
  readonly what: string
  readonly code: string
  readonly from: string
  readonly to: string
  readonly tests: string
}

const bugs: readonly Bug[] = [
  {
    name: 'last-page',
    what: 'pages(10, 3) must be 4, but is 3: the last page, which is not full, is forgotten',
    code: 'def pages(items, size):\n    """Number of pages of `size` items each."""\n    return items // size\n',
    from: 'items // size',
    to: '(items + size - 1) // size',
    tests: 'assert [pages(n, 3) for n in (0, 1, 3, 10)] == [0, 1, 1, 4]',
  },
  {
    name: 'shared-default',
    what: 'append(1) and then append(2) must give [1] and [2], but the second gives [1, 2]',
    code: 'def append(item, items=[]):\n    """The list with the item added; a new list if none is given."""\n    items.append(item)\n    return items\n',
    from: 'items=[]):\n    """The list with the item added; a new list if none is given."""\n',
    to: 'items=None):\n    """The list with the item added; a new list if none is given."""\n    items = [] if items is None else items\n',
    tests: 'assert append(1) == [1] and append(2) == [2]\nown = [0]\nassert append(3, own) is own and own == [0, 3]',
  },
  {
    name: 'negative-numbers',
    what: 'numbers("3 -4") must be [3, -4], but the sign is lost',
    code: 'import re\n\n\ndef numbers(text):\n    """All whole numbers in a text."""\n    return [int(n) for n in re.findall(r"\\d+", text)]\n',
    from: 'r"\\d+"',
    to: 'r"-?\\d+"',
    tests: 'assert numbers("3 -4 and 50") == [3, -4, 50] and numbers("none") == []',
  },
  {
    name: 'median',
    what: 'median([1, 2, 3, 4]) must be 2.5, but is 3',
    code: 'def median(values):\n    """The middle value, or the mean of the two middle values."""\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]\n',
    from: '    return ordered[len(ordered) // 2]',
    to: '    half = len(ordered) // 2\n    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2',
    tests: 'assert median([1, 2, 3, 4]) == 2.5 and median([9, 1, 5]) == 5 and median([7]) == 7',
  },
  {
    name: 'palindrome',
    what: 'is_palindrome("Never odd or even") must be True: spaces and case do not count',
    code: 'def is_palindrome(text):\n    """Whether the letters read the same from both ends."""\n    return text == text[::-1]\n',
    from: '    return text == text[::-1]',
    to: '    letters = [c for c in text.lower() if c.isalnum()]\n    return letters == letters[::-1]',
    tests: 'assert is_palindrome("Never odd or even") and is_palindrome("") and not is_palindrome("ab")',
  },
  {
    name: 'leap-year',
    what: 'is_leap(1900) must be False: of the full centuries only every fourth is a leap year',
    code: 'def is_leap(year):\n    """Whether a year of the Gregorian calendar has 366 days."""\n    return year % 4 == 0\n',
    from: 'year % 4 == 0',
    to: 'year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)',
    tests: 'assert [is_leap(y) for y in (1900, 2000, 2023, 2024)] == [False, True, False, True]',
  },
]

const moduleOf = (name: string) => name.replaceAll('-', '_')

/** Returns a shell command that runs Python to replace `from` by `to` in a file. */
const edit = (file: string, from: string, to: string) =>
  `python3 - <<'END'\npath = '${file}'\ntext = open(path).read()\nopen(path, 'w').write(text.replace(${JSON.stringify(from)}, ${JSON.stringify(to)}))\nEND`

export const pythonTasks: readonly SuiteTask[] = bugs.map(({ name, what, code, from, to, tests }) => {
  const file = `${moduleOf(name)}.py`
  return {
    name: `fix-${name}`,
    family: 'python-bug',
    instruction: `/app/${file} has a bug: ${what}. Repair it.`,
    files: { [file]: code },
    solution: `cat /app/${file}\n\n${edit(`/app/${file}`, from, to)}`,
    check: 'PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app python3 /tests/hidden.py',
    hidden: { 'hidden.py': `from ${moduleOf(name)} import *\n\n${tests}\n` },
  }
})
