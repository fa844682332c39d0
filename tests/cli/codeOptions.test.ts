/** The options --python and --packages: which combinations are refused. */
import { chosenCode } from '../../cli/options/codeOptions'

test('--python with --packages is refused with an error that main prints, not one that commander swallows', () => {
  expect(() => chosenCode({ python: 'python3', packages: ['pandas==3.1.1'] })).toThrow(
    expect.objectContaining({ code: 'cli.wrong_usage', boundary: 'cli', hint: 'leave out --python' }),
  )
})
