/** A report says whether its budgets hold, to a person and to a machine. */
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from '../../bench/report'

const printed = (report: BenchReport, json: boolean): { code: number; text: string } => {
  const write = jest.spyOn(process.stdout, 'write').mockReturnValue(true)
  try {
    const code = printReport(report, json)
    return { code, text: write.mock.calls.map(([text]) => text).join('') }
  } finally {
    write.mockRestore()
  }
}

test('a report whose budgets hold exits with 0, one that falls short with 1, and names which', () => {
  const report = { bench: 'bus', machine: describeMachine(), metrics: { perSecond: 123456.78 } }
  const good = { ...report, budgets: [atLeast('share', 0.5, 0.5), atMost('decisionUs', 20, 20)] }
  const bad = { ...report, budgets: [...good.budgets, atLeast('replay share', 0.49999, 0.5)] }
  expect(printed(good, true)).toEqual({ code: 0, text: `${JSON.stringify(good)}\n` })
  expect(printed(bad, true).code).toBe(1)
  const { code, text } = printed(bad, false)
  expect(code).toBe(1)
  expect(text).toMatch(/perSecond +123500\n/)
  expect(text).toMatch(/replay share .*falls short/)
})

test('a value that is not a number meets no budget', () => {
  expect(atLeast('share', Number.NaN, 0.5).ok).toBe(false)
  expect(atMost('share', Number.NaN, 0.5).ok).toBe(false)
})

test('the median of an even count is the mean of the middle two', () => {
  expect(median([4, 1, 3, 2])).toBe(2.5)
  expect(median([9, 1, 5])).toBe(5)
})
