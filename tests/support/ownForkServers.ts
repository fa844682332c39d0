/**
 * Imported by test files that look at processes: each process starts a fork server of its own, as it does for a user.
 *
 * in   TROUPE_FORK_SERVER, which the test runner sets (runner/forkServer.js)        out  the variable is not set
 */
delete process.env.TROUPE_FORK_SERVER
