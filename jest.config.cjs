/** Tests run from the sources; types are checked by `npm run lint`. One worker a core. */
module.exports = {
  testEnvironment: 'node',
  roots: ['<rootDir>/tests'],
  testMatch: ['**/*.test.ts'],
  transform: { '^.+\\.ts$': ['ts-jest', { diagnostics: false, tsconfig: 'tsconfig.json' }] },
  testSequencer: '<rootDir>/tests/runner/sequencer.js',
  testTimeout: 30_000,
  reporters: ['default', '<rootDir>/tests/runner/leftHandles.js'],
}
