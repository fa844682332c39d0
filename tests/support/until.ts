/** Waits until `holds` returns true, checked every `everyMs`; throws after `timeoutMs`. */
export async function until(holds: () => Promise<boolean> | boolean, timeoutMs = 10_000, everyMs = 10): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not true within ${timeoutMs} ms: ${holds}`)
    await new Promise(resolve => setTimeout(resolve, everyMs))
  }
}
