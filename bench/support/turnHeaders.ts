/**
 * Makes the headers of a turn's record, for the benchmarks of the buses: the same records on each bus. As in those that
 * the codec writes, some are the same for all records, some for a group, some for one record only.
 */
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
