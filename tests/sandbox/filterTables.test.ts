/**
 * The seccomp filters of both processors, run by an interpreter of their instructions: each system call that has a name in
 * filter.py's tables gets the same answer on aarch64 as on x86_64, and every other number is refused.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'

const PROGRAM = `
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import filter as f

def run(program, number, arch, arguments):
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments)
    at, a = 0, 0
    while True:
        op, jt, jf, k = struct.unpack_from("=HBBI", program.code, 8 * at)
        at += 1
        if op == f.LD: a = struct.unpack_from("=I", data, k)[0]
        elif op == f.AND: a &= k
        elif op == f.JA: at += k
        elif op == f.RET: return k
        else: at += jt if {f.JEQ: a == k, f.JGT: a > k, f.JGE: a >= k, f.JSET: a & k}[op] else jf

def answers(machine, kinds):
    f.MACHINE = machine
    f.O_DIRECT = 0x10000 if machine == "aarch64" else 0x4000
    table = f.AARCH64 if machine == "aarch64" else f.READ | f.WRITE | f.CHECKED
    arch, program = f.ARCHITECTURES[machine], f.build(**kinds)
    tries = [(0,) * 6, (0, 1, 4, 0, 0, 0), (0x10F00, 1, 1, 0, 0, 0), (1 << 40,) * 6, (0x20000000, 1, f.O_DIRECT, 3, 2, 8)]
    named = {name: [run(program, number, arch, t) for t in tries] for name, number in table.items()}
    others = {run(program, n, arch, (0,) * 6) for n in range(600) if n not in table.values()}
    foreign = {run(program, n, 0x40000028 if machine == "aarch64" else 0x40000003, (0,) * 6) for n in range(600)}
    return named, sorted(others), sorted(foreign)

result = []
for kinds in ({}, {"processes": True}, {"session": True}, {"degraded": True}):
    x86, arm = answers("x86_64", kinds), answers("aarch64", kinds)
    differ = [name for name, said in arm[0].items() if said != x86[0][name]]
    result.append([differ, len(arm[0]), x86[1], arm[1], x86[2], arm[2]])
print(json.dumps(result))
`
const REFUSED = 0x50001
const KILLED = 0x80000000

test('the filters of aarch64 answer as those of x86_64, refuse unlisted calls and kill calls of another processor', () => {
  const said = execFileSync('python3', ['-c', PROGRAM, join(__dirname, '../../sandbox/zygote')], { encoding: 'utf8' })
  for (const [differ, named, ...answers] of JSON.parse(said) as [string[], number, ...number[][]][]) {
    expect(differ).toEqual([])
    expect(named).toBeGreaterThan(160)
    expect(answers).toEqual([[REFUSED], [REFUSED], [KILLED], [KILLED]])
  }
})
