/** The Python package over a log: runs, steps, turns and trajectories as data frames and Arrow, Parquet that `datasets` loads, errors. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import { pythonPath } from '../../runtime/python'
import { changed, quickstartHistory, saveHistory } from '../support/histories'

jest.setTimeout(120_000)

const root = join(__dirname, '../..')
const folder = mkdtempSync(join(tmpdir(), 'troupe-door-'))
const history = quickstartHistory()

beforeAll(async () => {
  await saveHistory(folder, { ...history, run: runId('history') })
  await saveHistory(folder, { ...changed(history, m => (m.type === 'run.finished' ? null : m)), run: runId('live') })
})
afterAll(() => rmSync(folder, { recursive: true }))

/** Runs a program of Python with the package of the checkout; returns the JSON of its last line. */
function python(program: string): unknown {
  const env = {
    ...{ ...process.env, PYTHONPATH: join(root, 'python'), PYTHONDONTWRITEBYTECODE: '1' },
    ...{ TROUPE_NODE: process.execPath, TROUPE_BUS: `lmdb:${folder}`, HF_HOME: folder, HF_HUB_OFFLINE: '1' },
  }
  const text = `import json, troupe\n${program}`
  const out = execFileSync(pythonPath(), ['-c', text], { env, cwd: folder, encoding: 'utf8' })
  return JSON.parse(out.trim().split('\n').at(-1)!)
}

test('runs are listed with their state; tables are data frames, Arrow or rows; what is missing is an error', () => {
  const said = python(`
run = troupe.run("history")
turns, arrow, rows = run.turns(), run.turns(to="arrow"), run.turns(to="rows", of="s0001.0000")
one = run.trajectories(of="s0001.0000")
try: troupe.run("none")
except Exception as error: fault = str(error)
print(json.dumps({
  "runs": sorted([one.name, one.info["step"]] for one in troupe.runs()),
  "steps": run.steps()[["step", "rollouts"]].values.tolist(), "loss": run.steps()["metrics.loss"].notna().all().item(),
  "evaluations": len(run.evaluations()), "turns": [len(turns), arrow.num_rows, len(rows)],
  "errors": turns["tool_errors"].sum().item(), "live": len(troupe.run("live").turns()),
  "lengths": [len(a) == len(b) == len(c) for a, b, c in zip(one["tokens"], one["mask"], one["logprobs"])],
  "reward": one["reward"].tolist(), "fault": fault}))`)
  expect(said).toEqual({
    runs: [
      ['history', 3],
      ['live', 3],
    ],
    steps: [
      [1, 24],
      [2, 24],
      [3, 32],
    ],
    ...{ loss: true, evaluations: 2, turns: [184, 184, 17], live: 184 },
    errors: history.records.filter(({ message: m }) => m.type === 'tool.completed' && m.status !== 'ok').length,
    lengths: Array(8).fill(true),
    reward: [1, 0, 1, 1, 1, 0, 1, 0],
    fault: expect.stringMatching(/no run 'none' in [\s\S]*runs there: history, live[\s\S]*troupe\.runs\(\)/),
  })
})

test('Parquet keeps types, lists and nulls, and `datasets` loads it', () => {
  const said = python(`
import pyarrow.parquet as parquet
from datasets import load_dataset
run = troupe.run("history")
run.to_parquet("t.parquet"); run.to_parquet("u.parquet", table="turns")
rows = load_dataset("parquet", data_files="t.parquet", split="train")
first = next(row for row in rows if row["trajectory"] == "s0001.0000/1")
own = run.trajectories(to="rows", of="s0001.0000/1")[0]
schema = parquet.read_schema("t.parquet")
print(json.dumps({"rows": [len(rows), parquet.read_table("u.parquet").num_rows],
  "same": [first["tokens"] == own["tokens"], first["mask"] == own["mask"], max(abs(a - b) for a, b in zip(first["logprobs"], own["logprobs"])) < 1e-6],
  "nulls": [first["advantage"], first["trained_in"]], "messages": json.loads(first["messages"])[0]["role"],
  "types": [str(schema.field(name).type) for name in ("reward", "step", "requested_at", "tokens", "logprobs")]}))`)
  expect(said).toEqual({
    ...{ rows: [88, 184], same: [true, true, true], nulls: [null, null], messages: 'user' },
    types: ['double', 'int32', 'timestamp[ms, tz=UTC]', 'list<element: int32>', 'list<element: float>'],
  })
})

test('the notebook of the examples runs to its end over a log, and draws its plots', () => {
  const said = python(`
import nbclient, nbformat, os
for name in ["IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"]: os.environ[name] = os.path.abspath(name)
notebook = nbformat.read(${JSON.stringify(join(root, 'examples/run.ipynb'))}, as_version=4)
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
print(json.dumps({
  "plots": sum("image/png" in output.get("data", {}) for output in outputs),
  "tables": sum("<table" in output.get("data", {}).get("text/html", "") for output in outputs),
  "other": [output.get("text") for output in outputs if "data" not in output]}))`)
  expect(said).toEqual({ plots: 2, tables: 1, other: [] })
})
