// Runs untrusted Python in the sandbox, each call in its own isolated process. Needs no bus and no actors.
import { openSandbox, runBatch } from 'troupe/sandbox'

const text = bytes => Buffer.from(bytes).toString()
const sandbox = await openSandbox({ requireLevel: 'none' }) // 'full' would throw on a machine that cannot isolate

const { status, stdout } = await sandbox.run({ id: 'a', code: 'print(int(input()) * 2)', stdin: '21' })
console.log(status, text(stdout).trim())

const stuck = await sandbox.run({ id: 'b', code: 'while True: pass', timeoutMs: 300 })
console.log(stuck.status, stuck.cpuMs > 0)

const requests = Array.from({ length: 100 }, (_, n) => ({ id: String(n), code: `print(${n} ** 2)` }))
const results = await runBatch(sandbox, requests)
console.log(results.filter((result, n) => text(result.stdout) === `${n * n}\n`).length, 'of', requests.length)

await sandbox.close()
