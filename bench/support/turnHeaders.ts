/** The headers of a turn, for the benches of the buses: the same records on each. */
/** As the codec writes them: some the same for all, some a group's, some a record's. */
export const headersOf = (producer: number, index: number): Record<string, string> => ({
  type: 'turn.completed',
  version: '1',
  run: 'bench-run',
  trajectory: `group-${producer}/${index % 16}`,
  group: `group-${producer}`,
  turn: String(index),
  attempt: '0',
  policyVersion: '12',
})
