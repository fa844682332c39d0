/**
 * The commands of README and docs/: each is read by the real command line; those that ask for no model, server or hour run, and
 * what they print has the words that the page shows.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { main } from '../../cli/main'
import { runId } from '../../messages/ids'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { missingLine } from './outputShape'
import { commandsOf, type PageCommand, troupeCalls } from './pageCommands'
import { parsedCommand, wrongNames } from './parsedCommand'

jest.setTimeout(60_000)

const root = join(__dirname, '../..')
const bin = join(root, 'cli/bin.js')
const text = (page: string) => readFileSync(join(root, page), 'utf8')
const pages = [
  'README.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .map(name => `docs/${name}`)
    .sort(),
].filter(page => commandsOf(page, text(page)).length > 0)
const all = pages.flatMap(page => commandsOf(page, text(page)))

/** Programs besides `troupe` and npm that the pages call, and what makes sure that such a line works. */
const others: Readonly<Record<string, string>> = {
  cd: 'of the shell',
  export: 'of the shell',
  for: 'of the shell: its `npx troupe train --role` stands alone above it; tests/kafka/roles.test.ts',
  do: 'of the shell',
  done: 'of the shell',
  wait: 'of the shell',
  printf: 'of the shell',
  echo: 'of the shell',
  cat: 'shows a file of the page',
  grep: 'of the shell',
  tail: 'of the shell',
  head: 'of the shell',
  pip: 'tests/package.test.ts installs the wheel',
  curl: 'asks a judge that runs; tests/sandbox/server*.test.ts ask the same',
  docker:
    'no container engine in tests; tests/compose*.test.ts read the compose file, tests/containers have an image in its form',
  python: "a program of the reader's, or SGLang's server (tests/sglang)",
}

describe.each(pages)('%s', page => {
  test('every command is one that the command line takes', async () => {
    const wrong: string[] = []
    for (const command of commandsOf(page, text(page))) {
      for (const args of troupeCalls(command)) {
        const parsed = await parsedCommand(args).catch((error: Error) => error.message)
        const faults = typeof parsed === 'string' ? [parsed] : wrongNames(parsed, text(page))
        wrong.push(...faults.map(fault => `${command.place}: ${fault}`))
      }
      wrong.push(...wrongPrograms(command))
    }
    expect(wrong).toEqual([])
  })
})

test('what a page gives an image is a command of troupe, whose entry point it is', async () => {
  const inImages = all.filter(({ line }) => line.includes(' IMAGE ')).flatMap(troupeCalls)
  expect(inImages.map(([name]) => name)).toContain('judge')
  const [call] = commandsOf('docs/x.md', '```\ndocker run IMAGE npx troupe judge\n```\n').flatMap(troupeCalls)
  await expect(parsedCommand(call!)).rejects.toThrow("unknown command 'npx'")
})

test.each([
  [['train', 'gsm8k', '--set', 'train.lr=1'], /train\.lr: unknown field/],
  [['train', 'gsm9k'], /no recipe 'gsm9k'/],
  [['train', 'gsm8k', '--stps', '2'], /unknown option '--stps'/],
  [['replay', 'shw', 'x'], /unknown command 'shw'/],
  [['eval', 'gsm9k'], /'gsm9k' is none of/],
  [['check', 'mine.yaml'], /the page shows no such file/],
] as const)('a wrong command is found: %j', async (args, said) => {
  const parsed = await parsedCommand(args).catch((error: Error) => error.message)
  expect(typeof parsed === 'string' ? parsed : wrongNames(parsed, '').join()).toMatch(said)
})

function wrongPrograms({ place, commands }: PageCommand): readonly string[] {
  const { scripts } = JSON.parse(text('package.json')) as { readonly scripts: Readonly<Record<string, string>> }
  return commands.flatMap(({ words }) => {
    const [program = '', first = '', second = ''] = words
    if (program === 'troupe' || (program === 'npx' && first === 'troupe')) return []
    if (program === 'npm') {
      const script = first === 'run' ? second : first
      return scripts[script] !== undefined || script === 'pack' ? [] : [`${place}: no npm script '${script}'`]
    }
    if (program === 'cp' || program === 'node')
      return existsSync(join(root, first)) ? [] : [`${place}: no file '${first}'`]
    return others[program] === undefined ? [`${place}: '${program}' is not in the test's list of programs`] : []
  })
}

const folder = mkdtempSync(join(tmpdir(), 'troupe-docs-'))
const before = process.cwd()
beforeAll(async () => {
  const history = quickstartHistory()
  const tampered = changed(history, message =>
    message.type === 'rollout.finished' && message.trajectory === 's0002.0000/1'
      ? { ...message, answerTags: 7 }
      : message,
  )
  await saveHistory(join(folder, '.troupe'), { ...history, run: runId('history') })
  await saveHistory(join(folder, '.troupe'), { ...tampered, run: runId('tampered') })
  process.chdir(folder)
})
afterAll(() => {
  process.chdir(before)
  rmSync(folder, { recursive: true })
})

/** Calls that need no model: over the recorded run that the pages show, the resolved recipe, the estimate, the sandbox, the grader. */
const runs = [
  /^replay (?!fork|learn|entropy|diff)(?!.*--(logprobs|top)).*--run (history|tampered)\b/, // token texts need the run's tokenizer
  /^replay import group\.jsonl --as copy$/,
  /^config print /,
  /--estimate-only/,
  /^check mine\.yaml/,
  /^(exec|grade) --jsonl/,
]
const runnable = all.filter(command =>
  troupeCalls(command).some(args => runs.some(pattern => pattern.test(args.join(' ')))),
)

test('most pages about a log are run, not only read', () => {
  expect(runnable.length).toBeGreaterThan(30)
})

test.each(runnable.map(command => [command.place, command.line, command] as const))(
  '%s: %s',
  async (_, line, command) => {
    writeShownFiles(command.place)
    // Jest cannot import the ES module that writes Parquet.
    const isSimple = command.commands.length === 1 && !line.includes('parquet')
    const printed = isSimple ? await inThisProcess(troupeCalls(command)[0]!) : inShell(line)
    const isRefused = (lines: readonly string[]) => lines.some(text => text.startsWith('troupe: '))
    expect([missingLine(command.output, printed), printed]).toEqual([undefined, printed])
    expect([isRefused(printed.split('\n')), printed]).toEqual([isRefused(command.output), printed])
  },
)

/** Writes the files whose content the page shows before this place, below `$ cat FILE`. */
function writeShownFiles(place: string): void {
  const [page = ''] = place.split(':')
  for (const { commands, output, place: here } of commandsOf(page, text(page))) {
    const [program, file] = commands[0]!.words
    if (here === place) break
    if (program === 'cat' && output.length > 0) writeFileSync(file!, `${output.join('\n')}\n`)
  }
}

/** Runs a call. Returns what it printed, in order. */
async function inThisProcess(args: readonly string[]): Promise<string> {
  let printed = ''
  const write = (chunk: string | Uint8Array) => {
    printed += chunk.toString()
    return true
  }
  const spies = [process.stdout, process.stderr].map(stream => jest.spyOn(stream, 'write').mockImplementation(write))
  try {
    await main(args)
  } finally {
    for (const spy of spies) spy.mockRestore()
    process.exitCode = 0
  }
  return printed
}

function inShell(line: string): string {
  mkdirSync('bin', { recursive: true })
  const call = `exec ${JSON.stringify(process.execPath)} ${JSON.stringify(bin)} "$@"\n`
  writeFileSync('bin/troupe', `#!/bin/sh\n${call}`, { mode: 0o755 })
  const script = `${line.replaceAll('npx troupe', 'troupe')} 2>&1`
  return execFileSync('/bin/sh', ['-c', script], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${join(folder, 'bin')}:${process.env.PATH}` },
  })
}
