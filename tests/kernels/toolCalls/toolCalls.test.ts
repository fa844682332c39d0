/** The hermes parser on well-formed, broken and hostile text. */
import fc from 'fast-check'
import { jsonFault } from '../../../kernels/toolCalls/jsonFault'
import { parseToolCalls, printToolCall, resolveCalls } from '../../../kernels/toolCalls/toolCalls'

const malformedText = (body: string): string => {
  const { calls } = parseToolCalls(`<tool_call>${body}</tool_call>`)
  expect(calls).toHaveLength(1)
  return calls[0]!.kind === 'malformed' ? calls[0]!.error : `a call of ${calls[0]!.name}`
}

const anyArguments = fc.dictionary(
  fc.string({ unit: 'binary' }).filter(key => key !== '__proto__'),
  fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.constantFrom('</tool_call>', '<tool_call>{}</tool_call>', 'print("</tool_call>")', 'a\n"b\\"</tool_call>'),
  ),
  { maxKeys: 4 },
)
const anyName = fc.string({ unit: 'binary', minLength: 1, maxLength: 12 })
const between = fc.string({ unit: 'binary' }).filter(text => !text.includes('<tool_call>'))

test('printed calls are read back in order, whatever stands between them', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyName, anyArguments, between), { maxLength: 5 }), between, (calls, last) => {
      const normal = calls.map(([name, args, text]) => [name, JSON.parse(JSON.stringify(args)), text] as const)
      const text = normal.map(([name, args, before]) => before + printToolCall(name, args)).join('') + last
      const parsed = parseToolCalls(text)
      expect(parsed.unclosed).toBe(false)
      expect(parsed.calls.map(one => (one.kind === 'call' ? [one.name, one.arguments] : one))).toEqual(
        normal.map(([name, args]) => [name, args]),
      )
      for (const { start, end } of parsed.calls) expect(text.slice(start, end)).toMatch(/^<tool_call>.*<\/tool_call>$/s)
    }),
    { numRuns: 300 },
  )
})

test('no text makes the parser throw', () => {
  const pieces = fc.constantFrom(
    '<tool_call>',
    '</tool_call>',
    '{',
    '}',
    '"',
    '\\',
    '\\u12',
    'name',
    ':',
    ',',
    '\n',
    '[',
    '1e',
    ' ',
  )
  fc.assert(
    fc.property(fc.array(fc.oneof(pieces, fc.string({ unit: 'binary' }))), parts => {
      const { calls } = parseToolCalls(parts.join(''))
      for (const one of calls) if (one.kind === 'malformed') expect(one.error).toMatch(/^Failed to decode tool call: ./)
    }),
    { numRuns: 1000 },
  )
})

test('a fault is found in exactly those texts that JSON.parse refuses', () => {
  const token = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    ':',
    ',',
    '1',
    '-',
    '0',
    '.5',
    'e9',
    'true',
    'nul',
    ' ',
    '\\n',
    '\t',
    '"a"',
    '\\u00e9',
  )
  fc.assert(
    fc.property(
      fc.oneof(
        fc.array(token).map(parts => parts.join('')),
        fc.json(),
      ),
      text => {
        let accepted = true
        try {
          JSON.parse(text)
        } catch {
          accepted = false
        }
        expect(jsonFault(text) === null).toBe(accepted)
      },
    ),
    { numRuns: 3000 },
  )
})

test('arguments may be an object or a string that holds one', () => {
  for (const args of ['{"code": "1"}', '"{\\"code\\": \\"1\\"}"']) {
    const { calls } = parseToolCalls(`<tool_call>{"name": "f", "arguments": ${args}}</tool_call>`)
    expect(calls).toMatchObject([{ kind: 'call', name: 'f', arguments: { code: '1' } }])
  }
})

test('a malformed call says what is wrong with it, in words that do not change with the runtime', () => {
  expect(malformedText('{"name": "f", "arguments": {')).toBe(
    'Failed to decode tool call: the text ends: expected a key in double quotes or }',
  )
  expect(malformedText("{'name': 'f'}")).toBe(
    'Failed to decode tool call: expected a key in double quotes or } at character 1',
  )
  expect(malformedText('{"name": "f"}')).toBe('Failed to decode tool call: the key "arguments" is missing')
  expect(malformedText('{"arguments": {}}')).toBe('Failed to decode tool call: the key "name" is missing')
  expect(malformedText('{"name": "f", "arguments": {"code": "a\nb"}}')).toContain('a line break or control character')
  expect(malformedText('{"name": 1, "arguments": {}}')).toContain('"name" is not the name of a tool')
  expect(malformedText('{"name": "f", "arguments": [1]}')).toContain('"arguments" is not an object')
  expect(malformedText('{"name": "f", "arguments": "x"}')).toContain('"arguments" is a string that is not JSON')
  expect(malformedText('[]')).toContain('a call is an object')
  expect(malformedText('')).toContain('the text ends')
})

test('a tag that is never closed is no call, and the turn says so', () => {
  const text = `${printToolCall('f', {})}<tool_call>\n{"name": "g", "arguments": {}}`
  expect(parseToolCalls(text)).toMatchObject({ calls: [{ name: 'f' }], unclosed: true })
  expect(parseToolCalls('</tool_call> only')).toEqual({ calls: [], unclosed: false })
})

test('a tag inside a call makes it one malformed call, and the next one is read', () => {
  const { calls } = parseToolCalls(`<tool_call>${printToolCall('f', {})}</tool_call>${printToolCall('g', {})}`)
  expect(calls).toMatchObject([{ kind: 'malformed' }, { kind: 'call', name: 'g' }])
  expect((calls[0] as { error: string }).error).toContain('<tool_call> inside <tool_call>')
})

test('a broken call does not swallow a good one after it', () => {
  const broken = '<tool_call>{"name": "f", "arguments": {"code": "open</tool_call>'
  const { calls } = parseToolCalls(`${broken} then ${printToolCall('g', { a: 1 })}`)
  expect(calls).toMatchObject([{ kind: 'malformed' }, { kind: 'call', name: 'g', arguments: { a: 1 } }])
})

test('a megabyte of hostile tags is read in time linear in it', () => {
  for (const unit of ['<tool_call>{\\"</tool_call>', '<tool_call>', '<tool_call>{"</tool_call>', '[{"a":']) {
    const begun = performance.now()
    parseToolCalls(unit.repeat(1_000_000 / unit.length))
    parseToolCalls(`<tool_call>${unit.repeat(1_000_000 / unit.length)}</tool_call>`)
    expect(performance.now() - begun).toBeLessThan(5000)
  }
  expect(malformedText('['.repeat(100_000))).toContain('nested deeper than 64 levels')
})

test('unknown tools and malformed calls are refused with a text, calls over the limit are dropped and counted', () => {
  const { calls } = parseToolCalls(
    [
      printToolCall('python', { code: '1' }),
      printToolCall('search', {}),
      '<tool_call>{</tool_call>',
      printToolCall('python', {}),
    ].join('\n'),
  )
  const { resolved, dropped } = resolveCalls(calls, ['python'], 3)
  expect(resolved).toMatchObject([
    { kind: 'ready', call: 0, tool: 'python', arguments: { code: '1' } },
    { kind: 'refused', call: 1, tool: 'search', status: 'unknown-tool' },
    { kind: 'refused', call: 2, tool: '', status: 'malformed' },
  ])
  expect(resolved[1]).toHaveProperty(
    'text',
    'Error when executing tool: no tool is named "search"; the tools are: python',
  )
  expect(dropped).toHaveLength(1)
  expect(resolveCalls(calls, ['python'], 1).dropped).toHaveLength(3)
})

test('a good call, a broken one and one that is never closed are each read from one text', () => {
  const text = `Let us see. ${printToolCall('f', { a: [1, 2] })} and <tool_call>{"name": </tool_call> and <tool_call>`
  const { calls, unclosed } = parseToolCalls(text)
  expect(calls).toMatchObject([{ kind: 'call', name: 'f', arguments: { a: [1, 2] } }, { kind: 'malformed' }])
  expect(unclosed).toBe(true)
})
