/** Data tasks of the suite: sum a table's column, filter JSON, sort unique lines, find a log's commonest address. */
import type { SuiteTask } from './task'

const people = ['ada', 'bob', 'cy', 'dee', 'eve', 'fay', 'gus', 'hal']

const csvSum = ([column, factor]: readonly [string, number]): SuiteTask => {
  const values = people.map((_, at) => (at * factor) % 97)
  const rows = people.map((name, at) => `${name},${at + 20},${values[at]}`)
  return {
    name: `sum-${column}`,
    family: 'csv-sum',
    instruction: `/app/table.csv has a column ${column}. Write the sum of its numbers to /app/sum.txt.`,
    files: { 'table.csv': `${[`name,age,${column}`, ...rows].join('\n')}\n` },
    solution: `head -n 3 /app/table.csv\n\nawk -F, 'NR > 1 {sum += $3} END {print sum}' /app/table.csv > /app/sum.txt`,
    check: `[ "$(tr -d '[:space:]' < sum.txt)" = ${values.reduce((a, b) => a + b, 0)} ]`,
  }
}

const jsonFilter = ([field, least]: readonly [string, number]): SuiteTask => {
  const records = people.map((name, at) => ({ name, [field]: (at * 37) % 60 }))
  const kept = records.filter(record => Number(record[field]) >= least).map(({ name }) => name)
  return {
    name: `filter-${field}`,
    family: 'json-filter',
    instruction: `/app/records.json is a list of objects. Write the names of those whose ${field} is at least ${least} to /app/names.txt, one a line, in the list's order.`,
    files: { 'records.json': `${JSON.stringify(records, null, 1)}\n` },
    solution: `head -n 9 /app/records.json\n\npython3 -c "import json; print('\\n'.join(r['name'] for r in json.load(open('/app/records.json')) if r['${field}'] >= ${least}))" > /app/names.txt`,
    check: `[ "$(cat names.txt)" = "$(printf '${kept.join('\\n')}')" ]`,
  }
}

const sortUnique = ([name, lines]: readonly [string, readonly string[]]): SuiteTask => ({
  name: `unique-${name}`,
  family: 'sort-unique',
  instruction: `Write the lines of /app/${name}.txt to /app/unique.txt, sorted, each line once.`,
  files: { [`${name}.txt`]: `${lines.join('\n')}\n` },
  solution: `sort -u /app/${name}.txt > /app/unique.txt\n\ncat /app/unique.txt`,
  check: `[ "$(cat unique.txt)" = "$(printf '${[...new Set(lines)].sort().join('\\n')}')" ]`,
})

const topAddress = ([name, addresses]: readonly [string, Readonly<Record<string, number>>]): SuiteTask => {
  const lines = Object.entries(addresses).flatMap(([address, count]) =>
    Array.from({ length: count }, (_, at) => `${address} - GET /page${at} 200`),
  )
  // Mixes the lines, so that requests of one address do not follow one another.
  const mixed = lines.map((_, at) => lines[(at * 7) % lines.length]!)
  return {
    name: `top-${name}`,
    family: 'log-top',
    instruction: `Each line of /app/access.log begins with an address. Write the address with the most lines to /app/top.txt.`,
    files: { 'access.log': `${mixed.join('\n')}\n` },
    solution: `cut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn | head -n 3\n\ncut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}' > /app/top.txt`,
    check: `[ "$(tr -d '[:space:]' < top.txt)" = "$(cut -d' ' -f1 access.log | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}')" ]`,
  }
}

export const dataTasks: readonly SuiteTask[] = [
  ...(
    [
      ['price', 13],
      ['weight', 29],
      ['score', 41],
      ['hours', 7],
    ] as const
  ).map(csvSum),
  ...(
    [
      ['points', 30],
      ['age', 15],
      ['stock', 45],
    ] as const
  ).map(jsonFilter),
  ...(
    [
      ['fruits', ['pear', 'apple', 'pear', 'fig', 'apple', 'plum']],
      ['tags', ['red', 'blue', 'red', 'green', 'blue', 'amber']],
    ] as const
  ).map(sortUnique),
  ...(
    [
      ['visitor', { '10.0.0.1': 3, '10.0.0.7': 9, '10.0.0.9': 5 }],
      ['crawler', { '192.168.1.4': 11, '192.168.1.8': 2, '172.16.0.1': 4 }],
    ] as const
  ).map(topAddress),
]
