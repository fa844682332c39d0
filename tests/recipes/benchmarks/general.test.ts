/** GPQA, IFEval, BFCL and Arena-Hard on rows in their published formats, and their rewards on answers of every kind. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { graderSandbox } from '../../../actors/verification/graderSandbox'
import { openGraders } from '../../../actors/verification/graders'
import type { Grade } from '../../../actors/verification/verifierPort'
import { recipeSchema } from '../../../config'
import { taskId } from '../../../messages/ids'
import { benchmarkRecipe, benchmarks, readProblems } from '../../../recipes/benchmarks'
import { verdictIn } from '../../../recipes/benchmarks/arenaHard'
import { parseBfcl } from '../../../recipes/benchmarks/bfcl'
import { parseGpqa } from '../../../recipes/benchmarks/gpqa'
import { instructionLevel, parseIfeval } from '../../../recipes/benchmarks/ifeval'
import { instructions } from '../../../recipes/benchmarks/ifeval/instructions'
import type { Problem } from '../../../recipes/benchmarks/problem'
import { parseConfig } from '../../../runtime/settings/resolveConfig'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-benchmarks-'))
const sandbox = graderSandbox(1)
const closers: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const close of closers) await close()
  await sandbox.close()
  rmSync(directory, { recursive: true, force: true })
})

const lines = (rows: readonly object[]) => rows.map(row => `${JSON.stringify(row)}\n`).join('')

/** The benchmark's own judge, as a run would have it. */
async function judgeOf(
  name: string,
  data: object = {},
  reward: object = {},
): Promise<(problem: Problem, response: string) => Promise<Grade>> {
  const recipe = benchmarkRecipe(benchmarks.get(name)!)
  const given = { ...recipe.config, data: { ...recipe.config.data, ...data } }
  Object.assign(given, { reward: { ...recipe.config.reward, ...reward } })
  const config = parseConfig(recipeSchema, given, name)
  const { byName, close } = await openGraders({
    config,
    sandbox,
    ...(recipe.rewards ? { rewards: recipe.rewards } : {}),
  })
  closers.push(close)
  return ({ id, question, truth, messages, metadata = {} }, response) => {
    const asked = messages ?? [{ role: 'user' as const, content: question }]
    const task = { id: taskId(id), messages: asked, truth, reward: '', metadata }
    return byName.get('')!({ response, truth, task }, new AbortController().signal)
  }
}

describe('GPQA', () => {
  const csv = (rows: readonly (readonly string[])[]) =>
    rows.map(row => row.map(cell => `"${cell.replaceAll('"', '""')}"`).join(',')).join('\r\n')
  const head = [
    'Record ID',
    'Question',
    'Correct Answer',
    'Incorrect Answer 1',
    'Incorrect Answer 2',
    'Incorrect Answer 3',
    'Subdomain',
  ]
  const row = (id: string, right = 'red') => [
    id,
    `Which, of "these",\nis it (${id})?`,
    right,
    'w1',
    'w2',
    'w3',
    'Optics',
  ]

  test('the CSV is read with its commas, quotes and line breaks; choices lie the same way in every run, and differ by question', async () => {
    const rows = Array.from({ length: 40 }, (_, n) => row(`rec${n}`))
    const { problems, dropped } = parseGpqa(csv([head, ...rows, row('x', 'w1'), ['y', '', 'a', 'b', 'c', 'd', '']]))
    expect(dropped).toEqual({ 'two answers are the same': 1, 'no Question': 1 })
    expect(problems).toHaveLength(40)
    expect(problems[0]!.question).toContain('Which, of "these",\nis it (rec0)?\n\nA) ')
    expect(parseGpqa(csv([head, ...rows.toReversed()])).problems.find(p => p.id === 'rec7')).toEqual(problems[7])
    expect(new Set(problems.map(p => p.truth))).toEqual(new Set(['A', 'B', 'C', 'D']))
    for (const { truth, question, metadata } of problems) {
      expect(question).toContain(`\n${truth}) red`)
      expect((metadata!.choices as string[])[truth.charCodeAt(0) - 65]).toBe('red')
    }
    expect(parseGpqa(csv([head, ...rows]), 2).problems.map(p => p.truth)).not.toEqual(problems.map(p => p.truth))
    const judge = await judgeOf('gpqa')
    const [first] = problems
    expect(await judge(first!, `<answer>\\boxed{${first!.truth}}</answer>`)).toMatchObject({ reward: 1 })
    expect(await judge(first!, '<answer>\\boxed{red}</answer>')).toMatchObject({ reward: 1 })
    expect(await judge(first!, '<answer>w2</answer>')).toMatchObject({ reward: 0 })
  })

  test('a Record ID twice, or none, is refused with its line', () => {
    expect(() => parseGpqa(csv([head, row('a'), row('b'), row('a')]))).toThrow(
      /line \d+: id 'a' is already used at line/,
    )
    expect(() => parseGpqa(csv([head, row('')]))).toThrow('has no Record ID')
  })
})

describe('IFEval', () => {
  /** instruction, kwargs, a response that follows it, one that does not. */
  const table: readonly (readonly [string, object, string, string])[] = [
    ['keywords:existence', { keywords: ['sun', 'Moon'] }, 'The moon and the sun.', 'The moon.'],
    ['keywords:frequency', { keyword: 'tree', frequency: 2, relation: 'at least' }, 'Tree by tree.', 'A tree.'],
    ['keywords:forbidden_words', { forbidden_words: ['cat'] }, 'A concatenation.', 'A Cat sat.'],
    ['keywords:letter_frequency', { letter: 'z', let_frequency: 2, let_relation: 'less than' }, 'Zoo.', 'Zig zag.'],
    [
      'language:response_language',
      { language: 'de' },
      'Das ist ein ganz gewöhnlicher deutscher Satz über das Wetter.',
      'This is an ordinary English sentence about the weather.',
    ],
    [
      'length_constraints:number_sentences',
      { num_sentences: 3, relation: 'less than' },
      'Dr. Who paid 3.50 for it. Yes!',
      'One. Two. Three.',
    ],
    [
      'length_constraints:number_words',
      { num_words: 4, relation: 'at least' },
      "It's four whole words.",
      'Only three words.',
    ],
    ['length_constraints:number_paragraphs', { num_paragraphs: 2 }, 'One.\n***\nTwo.', 'One.\n\nTwo.'],
    [
      'length_constraints:nth_paragraph_first_word',
      { num_paragraphs: 2, nth_paragraph: 2, first_word: 'weekend' },
      'Hi.\n\n"Weekend" it is.',
      'Weekend.\n\nHi.',
    ],
    ['detectable_content:number_placeholders', { num_placeholders: 2 }, 'Dear [name], see [place].', 'Dear [name].'],
    ['detectable_content:postscript', { postscript_marker: 'P.S.' }, 'Bye.\n\nP. S. One more.', 'Bye.'],
    ['detectable_format:number_bullet_lists', { num_bullets: 2 }, 'Two:\n* one\n- two', '* one\n* two\n* three'],
    ['detectable_format:constrained_response', {}, 'Well: My answer is maybe.', 'Maybe.'],
    [
      'detectable_format:number_highlighted_sections',
      { num_highlights: 2 },
      'A *first* and **second** one.',
      'A *first* one and ** **.',
    ],
    [
      'detectable_format:multiple_sections',
      { section_spliter: 'Section', num_sections: 2 },
      'Section 1\na\nSection 2\nb',
      'Section 1\na',
    ],
    ['detectable_format:json_format', {}, '```json\n{"a": [1]}\n```', '{"a": [1}'],
    ['detectable_format:title', {}, '<<A Day>>\nText', '<< >> Text'],
    ['combination:two_responses', {}, 'First.\n******\nSecond.', 'Same.\n******\nSame.'],
    [
      'combination:repeat_prompt',
      { prompt_to_repeat: 'Write a poem.' },
      'write a poem.\nRoses.',
      'Roses. Write a poem.',
    ],
    [
      'startend:end_checker',
      { end_phrase: 'Is there anything else?' },
      'Yes. is there anything else?"',
      'Is there anything else? Yes.',
    ],
    ['startend:quotation', {}, '"All of it."', '"Not all" of it.'],
    [
      'change_case:capital_word_frequency',
      { capital_frequency: 2, capital_relation: 'at least' },
      'It is NOT so, I say.',
      'It is NOT so.',
    ],
    ['change_case:english_capital', {}, 'LOUD, 2 TIMES!', 'Loud.'],
    ['change_case:english_lowercase', {}, 'quiet, 2 times.', 'Quiet.'],
    ['punctuation:no_comma', {}, 'No such thing.', 'One, two.'],
  ]

  test('every instruction of the benchmark has a rule', () => {
    expect(table.map(([id]) => id).sort()).toEqual(Object.keys(instructions).sort())
    expect(table).toHaveLength(25)
  })

  test.each(table)('%s is followed or not', (id, kwargs, good, bad) => {
    const args = kwargs as Record<string, unknown>
    expect(instructions[id]!(good, args, '')).toBe(true)
    expect(instructions[id]!(bad, args, '')).toBe(false)
  })

  test.each([
    ['pa', 'ਅੱਜ ਮੌਸਮ ਚੰਗਾ ਹੈ ਅਤੇ ਅਸੀਂ ਨਦੀ ਦੇ ਕੰਢੇ ਸੈਰ ਕਰਨ ਜਾ ਰਹੇ ਹਾਂ।'],
    ['ml', 'ഇന്ന് കാലാവസ്ഥ നല്ലതാണ്, ഞങ്ങൾ നദീതീരത്ത് നടക്കാൻ പോകുന്നു.'],
    ['mr', 'आज हवामान छान आहे आणि आम्ही जेवणानंतर नदीकाठी फिरायला जाणार आहोत.'],
    ['ne', 'आज मौसम राम्रो छ र हामी खाना खाएपछि नदी किनारमा हिँड्ने योजना बनाइरहेका छौं।'],
    ['hi', 'आज मौसम अच्छा है और हम दोपहर के भोजन के बाद नदी के किनारे टहलने जा रहे हैं।'],
    ['sw', 'Hali ya hewa leo ni nzuri na tunapanga kutembea kando ya mto baada ya chakula cha mchana.'],
    ['sw', 'Ninapenda kusoma vitabu kila siku.'],
    ['en', 'The weather is fine today, and we are going to walk along the river after lunch.'],
    ['es', 'El tiempo de hoy es agradable y pensamos caminar junto al río después de comer.'],
  ])('a text in %s is told from one in any other language', (language, text) => {
    const answers = (asked: string) => instructions['language:response_language']!(text, { language: asked }, '')
    expect(['pa', 'ml', 'mr', 'ne', 'hi', 'sw', 'en', 'es'].filter(answers)).toEqual([language])
  })

  test('words, sentences and postscripts are counted as the published checkers count them', () => {
    const words = (text: string, n: number) =>
      instructions['length_constraints:number_words']!(text, { num_words: n, relation: 'at least' }, '') &&
      !instructions['length_constraints:number_words']!(text, { num_words: n + 1, relation: 'at least' }, '')
    expect(words("I don't know any well-known snake_case word.", 9)).toBe(true)
    const sentences = (text: string, n: number) =>
      instructions['length_constraints:number_sentences']!(text, { num_sentences: n + 1, relation: 'less than' }, '') &&
      instructions['length_constraints:number_sentences']!(text, { num_sentences: n, relation: 'at least' }, '')
    const counted: readonly (readonly [string, number])[] = [
      ['A title\n\nOne sentence, then a list:\n\n- this\n- that.\n\nAnother one.', 2],
      ['**Wow!** It works.', 2],
      ['It works. **Wow!**', 3], // the marks that are left over are one more
      ['"Stop!" he said. (Nobody did.) So it was.', 4],
      ['See e.g. this, etc. and that.', 3], // Punkt does not know these abbreviations
      ['Mr. Smith came at 5 p.m. from the U.S. embassy.', 1],
      ['He came at 5 p.m. He left at 6 p.m. Ann was there.', 2],
      ['Wait... what? Wait... What?', 3],
      ['1. First one.\n2. second one.', 3],
      ['J. Smith met Plan B. The end.', 2],
      ['f(a?: number): what?! Yes.', 3],
      ['a.b?c!d', 1],
      ['. '.repeat(20_000), 20_000],
    ]
    for (const [text, n] of counted) expect([text.slice(0, 60), sentences(text, n)]).toEqual([text.slice(0, 60), true])
    const postscript = (text: string, marker: string) =>
      instructions['detectable_content:postscript']!(text, { postscript_marker: marker }, '')
    for (const text of ['Bye.\n**P.S.** Bring a coat.', 'Bye. (P. S. Bring a coat.)'])
      expect(postscript(text, 'P.S.')).toBe(true)
    expect(postscript('Bye.\n*P.P.S* Bring two.', 'P.P.S')).toBe(true)
    expect(postscript('Bye. PS: Bring a coat.', 'P.S.')).toBe(false)
    const capitals = { capital_frequency: 2, capital_relation: 'less than' }
    expect(instructions['change_case:capital_word_frequency']!('A WELL-KNOWN', capitals, '')).toBe(false)
    expect(instructions['change_case:capital_word_frequency']!('So WELL-KNOWN', capitals, '')).toBe(true)
    for (const two of ["DON'T", "NASA's OK", 'X=1 U.S.A.', 'A/B 10:C', '**BOLD**:WORD'])
      expect([two, instructions['change_case:capital_word_frequency']!(two, capitals, '')]).toEqual([two, false])
    for (const one of ["O'BRIEN", 'A/B', 'X_Y=Z', '5E2', "it's A"])
      expect([one, instructions['change_case:capital_word_frequency']!(one, capitals, '')]).toEqual([one, true])
  })

  test('marks, places and paragraphs are found where the published checkers find them', () => {
    const most = (id: string, bound: string, text: string) => {
      let n = 0
      while (instructions[id]!(text, { [bound]: n + 1 }, '')) n++
      return n
    }
    const highlights = (text: string) => most('detectable_format:number_highlighted_sections', 'num_highlights', text)
    expect(
      ['**a** and *b*', '***Title***', '* **A:** x\n* **B:** y', '*a **b** c*', '** ** * *'].map(highlights),
    ).toEqual([2, 2, 4, 4, 0])
    const places = (text: string) => most('detectable_content:number_placeholders', 'num_placeholders', text)
    expect(['[\n "a"\n]', '[a] [b]', '[[a] b]', '[a\n[b]', '[]', '['.repeat(50_000)].map(places)).toEqual([
      0, 2, 1, 1, 1, 0,
    ])
    const begins = (text: string, nth: number, count: number) =>
      instructions['length_constraints:nth_paragraph_first_word']!(
        text,
        { num_paragraphs: count, nth_paragraph: nth, first_word: 'two' },
        '',
      )
    expect(begins('One.\n\n\n\nTwo.', 2, 2)).toBe(false) // the second is empty
    expect(begins('One.\n\nTwo.\n\n', 2, 2)).toBe(true)
    expect(begins('\n\nTwo.\n\nThree.', 2, 2)).toBe(true)
  })

  test('English in one case is English: another language is not, where the text is long enough to tell', () => {
    const german = 'das ist ein ganz gewöhnlicher deutscher satz über das wetter von heute und morgen.'
    const english = 'the weather is fine today, and all of us are going to walk along the river.'
    const [lower, capital] = [
      instructions['change_case:english_lowercase']!,
      instructions['change_case:english_capital']!,
    ]
    const asked = [german, english, 'guten tag.'].flatMap(text => [
      lower(text, {}, ''),
      capital(text.toUpperCase(), {}, ''),
    ])
    expect(asked).toEqual([false, false, true, true, true, true])
  })

  test('a row whose language cannot be told from others has no reward, and is no zero', async () => {
    const row = {
      key: 1,
      prompt: 'p',
      instruction_id_list: ['language:response_language'],
      kwargs: [{ language: 'xx' }],
    }
    const { problems } = parseIfeval(lines([row]))
    const judge = await judgeOf('ifeval')
    expect(await judge(problems[0]!, 'Some words of an answer.')).toMatchObject({
      ...{ reward: null, why: expect.stringContaining("the language 'xx' cannot be detected") },
    })
  })

  test('a prompt counts only where all its instructions are followed; each is told by a digit', async () => {
    const rows = [
      {
        key: 1,
        prompt: 'p',
        instruction_id_list: ['punctuation:no_comma', 'startend:quotation'],
        kwargs: [{ num_words: null }, {}],
      },
      { key: 2, prompt: 'q', instruction_id_list: ['no:such'], kwargs: [{}] },
      { key: 3, prompt: 'r', instruction_id_list: ['punctuation:no_comma'], kwargs: [] },
    ]
    const { problems, dropped } = parseIfeval(lines(rows))
    expect(dropped).toEqual({ 'unknown instruction no:such': 1, 'kwargs do not match the instructions': 1 })
    const judge = await judgeOf('ifeval')
    expect(await judge(problems[0]!, '"Fine."<|im_end|>')).toMatchObject({ reward: 1, answer: '11' })
    expect(await judge(problems[0]!, 'Fine.')).toMatchObject({
      reward: 0,
      answer: '10',
      why: 'not followed: startend:quotation',
    })
    expect(await judge(problems[0]!, '<|im_end|>')).toMatchObject({ reward: 0, answer: '00' })
    expect(instructionLevel(['11', '10', '00'])).toEqual({ followed: 3, asked: 6 })
    expect(() => parseIfeval(lines([rows[0]!, rows[0]!]))).toThrow("line 2: id '1' is already used at line 1")
    expect(() => parseIfeval(lines([{ prompt: 'p' }]))).toThrow('line 1: the row has no key')
  })
})

describe('BFCL', () => {
  const area = {
    name: 'geometry.area',
    description: 'd',
    parameters: {
      type: 'dict',
      properties: {
        base: { type: 'integer' },
        height: { type: 'float' },
        unit: { type: 'string' },
        tags: { type: 'array' },
      },
      required: ['base', 'height'],
    },
  }
  const weather = {
    name: 'weather',
    parameters: { type: 'dict', properties: { city: { type: 'string' } }, required: ['city'] },
  }
  const ask = (id: string, functions: unknown = [area, weather], more: object = {}) => ({
    ...{ id, question: [[{ role: 'user', content: 'How large is it?' }]], function: functions },
    ...more,
  })
  const possible = {
    'geometry.area': { base: [10], height: [5, 5.5], unit: ['square cm', ''], tags: ['', ['a', 'b']], depth: [1, ''] },
  }
  const call = (name: string, args: object) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`

  test('calls are compared by name, types and possible values, in any order where there are several', async () => {
    const answers = [
      { id: 'simple_0', ground_truth: [possible] },
      {
        id: 'parallel_1',
        ground_truth: [{ weather: { city: ['Paris', 'Paris, France'] } }, { weather: { city: ['Rome'] } }],
      },
    ]
    const { problems } = parseBfcl(
      lines([ask('simple_0', area), ask('parallel_1'), ask('irrelevance_2')]),
      lines(answers),
      undefined,
    )
    const [simple, parallel, irrelevance] = problems as [Problem, Problem, Problem]
    expect(simple.messages![0]!.content).toContain('"name":"geometry.area"')
    const judge = await judgeOf('bfcl')
    const right = [
      call('geometry.area', { base: 10, height: 5 }),
      call('geometry_area', { base: 10, height: 5.5, unit: 'Square-CM' }),
      `Let me see.\n${call('geometry.area', { base: 10, height: 5, tags: ['A', 'b'] })}<|im_end|>`,
    ]
    for (const response of right)
      expect([response, await judge(simple, response)]).toMatchObject([response, { reward: 1 }])
    const wrong: readonly (readonly [string, string])[] = [
      ['It is 50.', '0 calls, expected 1'],
      [call('area', { base: 10, height: 5 }), 'calls area'],
      [call('geometry.area', { base: 10 }), "required argument 'height' is missing"],
      [call('geometry.area', { base: 11, height: 5 }), "'base' has the wrong value 11"],
      [call('geometry.area', { base: '10', height: 5 }), "'base' is not of type integer"],
      [call('geometry.area', { base: 10.5, height: 5 }), "'base' is not of type integer"],
      [call('geometry.area', { base: 10, height: 5, colour: 'red' }), "unexpected argument 'colour'"],
      [call('geometry.area', { base: 10, height: 5, tags: ['b', 'a'] }), "'tags' has the wrong value"],
      [call('geometry.area', { base: 10, height: 5, depth: 1 }), "unexpected argument 'depth'"], // an answer, not described
      [right[0]! + right[0]!, '2 calls, expected 1'],
      ['<tool_call>{"name": </tool_call>', 'decode'],
    ]
    for (const [response, why] of wrong) {
      expect([response, await judge(simple, response)]).toMatchObject([
        response,
        { reward: 0, why: expect.stringContaining(why) },
      ])
    }
    const [paris, rome] = [call('weather', { city: 'paris' }), call('weather', { city: 'Rome' })]
    expect(await judge(parallel, rome + paris)).toMatchObject({ reward: 1 })
    expect(await judge(parallel, rome + rome)).toMatchObject({ reward: 0 })
    expect(await judge(irrelevance, 'None of them can help.')).toMatchObject({ reward: 1, how: 'bfcl-irrelevance' })
    expect(await judge(irrelevance, paris)).toMatchObject({ reward: 0 })
  })

  test('a variable stands for a value of another type where the possible answers say so, and of possible values in a dict one is given', async () => {
    const declared = {
      name: 'find',
      parameters: {
        type: 'dict',
        properties: { user: { type: 'integer' }, where: { type: 'dict' }, count: { type: 'integer' } },
        required: ['user'],
      },
    }
    const wanted = {
      user: ['user_id'],
      where: [{ city: ['Paris', 'London'], zips: [[1, 2]] }, ''],
      count: ['', 3, 'n'],
    }
    const { problems } = parseBfcl(
      lines([ask('simple_9', declared, { ground_truth: [{ find: wanted }] })]),
      undefined,
      undefined,
    )
    const judge = await judgeOf('bfcl')
    const rewardOf = async (args: object) => (await judge(problems[0]!, call('find', args))).reward
    const where = { city: 'london', zips: [1, 2] }
    for (const right of [{ user: 'user_id' }, { user: 'user_id', where }, { user: 'user_id', count: 3 }])
      expect([right, await rewardOf(right)]).toEqual([right, 1])
    const wrong = [
      { user: 7 },
      { user: 'USER_ID' }, // a name, not a text
      { user: ['user_id'] },
      { user: 'user_id', count: 'n' }, // the first possible one says the type
      { user: 'user_id', where: { ...where, city: ['Paris', 'London'] } },
      { user: 'user_id', where: { ...where, zips: 1 } },
    ]
    for (const args of wrong) expect([args, await rewardOf(args)]).toEqual([args, 0])
  })

  test('a float is no integer, even a whole one, and texts are compared loosely in a list, not in a list within it', async () => {
    const types = {
      ...{ n: { type: 'integer' }, x: { type: 'float' }, list: { type: 'array', items: { type: 'integer' } } },
      ...{ texts: { type: 'array', items: { type: 'string' } }, nested: { type: 'array', items: { type: 'array' } } },
    }
    const declared = { name: 'f', parameters: { type: 'dict', properties: types, required: [] } }
    const wanted = {
      ...{ n: [10, ''], x: [10, ''], list: [[1, 2], ''], texts: [['A b'], ''], nested: [[['A b'], [1]], ''] },
    }
    const row = ask('simple_3', declared, { ground_truth: [{ f: wanted }] })
    const { problems } = parseBfcl(lines([row]), undefined, undefined)
    const judge = await judgeOf('bfcl')
    const rewardOf = async (args: string) => {
      const written = `<tool_call>{"name": "f", "arguments": ${args}}</tool_call>`
      return (await judge(problems[0]!, written)).reward
    }
    const right = [
      ...['{"n": 10}', '{"x": 10}', '{"x": 10.0}', '{"x": 1e1}', '{"list": [1, 2]}', '{"texts": ["a B"]}'],
      ...['{"nested": [["A b"], [1]]}', JSON.stringify('{"x": 10.0, "n": 10}')],
    ]
    for (const args of right) expect([args, await rewardOf(args)]).toEqual([args, 1])
    const wrong = [
      ...[
        '{"n": 10.0}',
        '{"n": 1e1}',
        '{"n": 10.5}',
        '{"list": [1.0, 2]}',
        '{"texts": ["ac"]}',
        '{"nested": [["ab"], [1]]}',
      ],
      ...['{"n": "10.0"}', JSON.stringify('{"n": 10.0}')],
    ]
    for (const args of wrong) expect([args, await rewardOf(args)]).toEqual([args, 0])
  })

  test('executable calls are made in the sandbox, and compared by what they give; a wanted call that fails is no wrong answer', async () => {
    const functions = join(directory, 'functions.py')
    writeFileSync(
      functions,
      'def area(base, height):\n    return base * height / 2\ndef price():\n    return 100.0\ndef bad():\n    raise KeyError(1)\n',
    )
    const exec = (id: string, truth: string[], kinds: string[]) =>
      ask(id, [area], { ground_truth: truth, execution_result_type: kinds })
    const rows = [
      exec('exec_simple_0', ['area(base=10, height=5)'], ['exact_match']),
      exec('exec_simple_1', ['price()'], ['real_time_match']),
      exec('exec_simple_2', ['bad()'], ['exact_match']),
    ]
    const { problems } = parseBfcl(lines(rows), undefined, functions)
    expect(parseBfcl(lines(rows), undefined, undefined).dropped).toEqual({
      'executable category without --set data.functions=FILE': 3,
    })
    const judge = await judgeOf('bfcl')
    expect(await judge(problems[0]!, call('area', { base: 5, height: 10 }))).toMatchObject({ reward: 1 })
    expect(await judge(problems[0]!, call('area', { base: 5, height: 9 }))).toMatchObject({
      reward: 0,
      why: expect.stringContaining('gives 22.5'),
    })
    expect(await judge(problems[0]!, call('area', { base: 5 }))).toMatchObject({
      reward: 0,
      why: expect.stringContaining('TypeError'),
    })
    expect(await judge(problems[0]!, call('open', { file: '/etc/passwd' }))).toMatchObject({
      reward: 0,
      why: expect.stringContaining('no function open'),
    })
    expect(await judge(problems[2]!, call('price', {}))).toMatchObject({
      reward: null,
      why: expect.stringContaining('an expected call (ground_truth) cannot be executed'),
    })
  })

  test('a function may print, end its process or hang: what a wanted call does is no fault of the model, what its own does is one', async () => {
    const functions = join(directory, 'noisy.py')
    writeFileSync(
      functions,
      'import os, sys, time\ndef loud(n):\n    print("no line break", end="")\n    os.write(1, b"{}")\n    return n\ndef hang(n):\n    time.sleep(60)\ndef leave(n):\n    print(\'{"fault": null}\', flush=True)\n    sys.exit(0)\n',
    )
    const rows = ['loud(n=1)', 'hang(n=1)'].map((truth, at) =>
      ask(`exec_simple_${at}`, [area], { ground_truth: [truth], execution_result_type: ['exact_match'] }),
    )
    const { problems } = parseBfcl(lines(rows), undefined, functions)
    const judge = await judgeOf('bfcl', {}, { timeoutMs: 4000 })
    expect(await judge(problems[0]!, call('loud', { n: 1 }))).toMatchObject({ reward: 1 })
    expect(await judge(problems[0]!, call('leave', { n: 1 }))).toMatchObject({
      reward: 0,
      why: expect.stringContaining('SystemExit'),
    })
    expect(await judge(problems[0]!, call('hang', { n: 1 }))).toMatchObject({
      reward: 0,
      why: expect.stringContaining('out of time'),
    })
    expect(await judge(problems[1]!, call('loud', { n: 1 }))).toMatchObject({
      reward: null,
      why: expect.stringContaining('an expected call (ground_truth) runs out of time'),
    })
  })

  test('ids that are missing or twice, in rows or in answers, are refused with their line', () => {
    expect(() => parseBfcl(lines([ask('irrelevance_0'), ask('irrelevance_0')]), undefined, undefined)).toThrow('line 2')
    expect(() => parseBfcl(lines([{ ...ask('a'), id: undefined }]), undefined, undefined)).toThrow(
      'line 1: the row has no id',
    )
    const answers = [
      { id: 'a', ground_truth: [] },
      { id: 'a', ground_truth: [] },
    ]
    expect(() => parseBfcl(lines([ask('a')]), lines(answers), undefined)).toThrow(
      "line 2: id 'a' is already used at line 1 of the answers file",
    )
    expect(parseBfcl(lines([ask('simple_0')]), undefined, undefined).dropped).toEqual({ 'no ground truth': 1 })
  })
})

describe('Arena-Hard', () => {
  let server: Server
  let url: string
  const asked: { authorization: string | undefined; a: string; b: string; model: string }[] = []
  /** What the judge says about two answers. */
  let say: (a: string, b: string) => { status?: number; content?: string | null; refusal?: string } | undefined

  beforeAll(async () => {
    server = createServer(async (request, response) => {
      let body = ''
      for await (const chunk of request) body += chunk
      const { messages, model } = JSON.parse(body) as { messages: { content: string }[]; model: string }
      const content = messages.at(-1)!.content
      const part = (name: string) =>
        new RegExp(`--- Answer ${name} ---\\n([\\s\\S]*)\\n--- end of ${name} ---`).exec(content)![1]!
      const [a, b] = [part('A'), part('B')]
      asked.push({ authorization: request.headers.authorization, a, b, model })
      const said = say(a, b)
      if (said === undefined) return void response.destroy()
      const { status = 200, content: text = null, refusal } = said
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(
        JSON.stringify(status === 200 ? { choices: [{ message: { content: text, refusal } }] } : { error: 'no' }),
      )
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  })
  afterAll(() => new Promise(resolve => server.close(resolve)))
  beforeEach(() => {
    asked.length = 0
  })

  const questions = lines([
    { question_id: 'q1', category: 'arena-hard', cluster: 'c', turns: [{ content: 'Say something.' }] },
    { question_id: 'q2', turns: [{ content: 'More.' }] },
  ])
  const baseline = lines([{ question_id: 'q1', model_id: 'm', choices: [{ index: 0, turns: [{ content: 'base' }] }] }])

  async function problem(): Promise<Problem> {
    writeFileSync(join(directory, 'q.jsonl'), questions)
    writeFileSync(join(directory, 'b.jsonl'), baseline)
    const read = await readProblems(benchmarks.get('arena-hard')!, join(directory, 'q.jsonl'), {
      answers: join(directory, 'b.jsonl'),
    })
    expect(read.dropped).toEqual({ 'the baseline has no answer to it': 1 })
    return read.problems[0]!
  }
  const judge = (more: object = {}) => judgeOf('arena-hard', { judge: { url, model: 'j', timeoutMs: 2000, ...more } })

  test('an answer plays both sides; a strong verdict counts three times', async () => {
    process.env.TROUPE_TEST_JUDGE_KEY = 'k1'
    const ask = await judge({ apiKey: { env: 'TROUPE_TEST_JUDGE_KEY' } })
    const one = await problem()
    say = a => ({ content: a === 'mine' ? 'So [[A>>B]]' : '[[B>A]].' })
    expect(await ask(one, 'mine<|im_end|>')).toMatchObject({ reward: 1, answer: 'A>>B B>A' })
    expect(asked.map(({ a, b }) => [a, b])).toEqual([
      ['mine', 'base'],
      ['base', 'mine'],
    ])
    expect(asked[0]).toMatchObject({ authorization: 'Bearer k1', model: 'j' })
    say = a => ({ content: a === 'mine' ? '[[A>B]]' : 'it is [[A>>B]]' }) // won weakly, lost strongly
    expect(await ask(one, 'mine')).toMatchObject({ reward: 0.25 })
    say = () => ({ content: '[[A>B]]' }) // whoever comes first: a draw
    expect(await ask(one, 'mine')).toMatchObject({ reward: 0.5 })
  })

  test('a judge that refuses, gives no verdict, breaks or is not there gives no reward, each by its own name', async () => {
    const ask = await judge()
    const one = await problem()
    say = () => ({ refusal: 'I cannot compare these.' })
    expect(await ask(one, 'mine')).toEqual({
      reward: null,
      how: 'verifier.judge_refused',
      why: 'the judge refused to compare the answers: I cannot compare these.',
    })
    say = () => ({ content: 'Both are fine. [[A>B]] or [[B>A]]' })
    expect(await ask(one, 'mine')).toMatchObject({ reward: null, how: 'verifier.no_verdict' })
    say = () => ({ status: 401 })
    expect(await ask(one, 'mine')).toMatchObject({
      reward: null,
      how: 'verifier.judge_failed',
      why: expect.stringContaining('401'),
    })
    let times = 0
    say = () => (++times <= 2 ? { status: 503 } : { content: '[[A=B]]' })
    expect(await ask(one, 'mine')).toMatchObject({ reward: 0.5 })
  })

  test('the wait for a lane to the judge costs an answer nothing of its deadline', async () => {
    const slowly = createServer((request, response) => {
      request.resume().on('end', () =>
        setTimeout(() => {
          response.setHeader('content-type', 'application/json')
          response.end(JSON.stringify({ choices: [{ message: { content: '[[A=B]]' } }] }))
        }, 100),
      )
    })
    await new Promise<void>(resolve => slowly.listen(0, '127.0.0.1', resolve))
    try {
      const at = `http://127.0.0.1:${(slowly.address() as AddressInfo).port}/v1`
      const data = { judge: { url: at, model: 'j', atOnce: 2 } }
      const ask = await judgeOf('arena-hard', data, { timeoutMs: 2500 })
      const one = await problem()
      // 80 games, two at once: the last one begins after four seconds.
      const grades = await Promise.all(Array.from({ length: 40 }, (_, i) => ask(one, `answer ${i}`)))
      expect(grades.filter(({ reward }) => reward !== 0.5)).toEqual([])
    } finally {
      await new Promise(resolve => slowly.close(resolve))
    }
  })

  test('verdicts are read in every form, and two that differ are none', () => {
    expect(['[[A>>B]]', '[[B<A]]', 'x [[A=B]] y', '[[B=A]]', '[[A<<B]]', '[[A>B]] [[A>B]]'].map(verdictIn)).toEqual([
      'A>>B',
      'A>B',
      'A=B',
      'A=B',
      'B>>A',
      'A>B',
    ])
    expect(['', '[[A>A]]', '[A>B]', '[[A>B]] [[B>A]]'].map(verdictIn)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ])
  })
})
