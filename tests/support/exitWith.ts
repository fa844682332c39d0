/**
 * Runs `main` of a test program: the process exits with the code that it resolves with; after an error with 1, and
 * prints it.
 */
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
