/** The text that a command prints when it fails: message, hint and code, without control characters. */
import { reportError } from '../../../cli/io/reportError'
import { TroupeError } from '../../../runtime/errors'

const clearScreen = '\u001b[2J'

function printedFor(thrown: unknown): string {
  const write = jest.spyOn(process.stderr, 'write').mockReturnValue(true)
  try {
    reportError(thrown)
    return write.mock.calls.map(([text]) => String(text)).join('')
  } finally {
    write.mockRestore()
  }
}

test.each([
  ['a stack', new Error(`bad ${clearScreen}`)],
  [
    'a hint',
    new TroupeError('cli.wrong_usage', {
      boundary: 'cli',
      retriable: false,
      message: 'bad',
      hint: `give ${clearScreen}`,
    }),
  ],
])('no control character of %s reaches the terminal', (_, thrown) => {
  const printed = printedFor(thrown)
  expect(printed).toContain('[2J')
  expect(printed).not.toContain('\u001b')
})
