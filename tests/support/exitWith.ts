/** A test that is a program of its own: ends with the code that its `main` resolves with, or with 1 and what was thrown. */
export function exitWith(main: () => Promise<number>): void {
  main().then(
    code => {
      process.exitCode = code
    },
    error => {
      console.error(error)
      process.exitCode = 1
    },
  )
}
