/**
 * The official SDKs of npm (openai, @anthropic-ai/sdk, ai), unchanged: chat, responses and messages, whole and streamed.
 *
 * in   argv: the gateway's address        out  a JSON line with what each client got
 * Each client goes on with its first answer, in the form in which its SDK keeps a history.
 */
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import Anthropic from '@anthropic-ai/sdk'
import { generateText, stepCountIs, streamText, tool } from 'ai'
import OpenAI from 'openai'
import { z } from 'zod'

const url = process.argv[2]
const out = {}
const hello = { role: 'user', content: 'hello' }
const on = { role: 'user', content: 'go on' }

const chat = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'node-chat' }).chat.completions
const said = await chat.create({ model: 'any', messages: [hello] })
const streamed = await chat
  .stream({ model: 'any', messages: [hello, said.choices[0].message, on] })
  .finalChatCompletion()
out.chat = [said.choices[0].message.content, streamed.choices[0].message.content]

const { responses } = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'node-responses' })
const first = await responses.create({ model: 'any', input: 'hello' })
const second = await responses.create({ model: 'any', input: 'go on', previous_response_id: first.id })
out.responses = [first.output_text, second.output_text]

const { messages } = new Anthropic({ baseURL: url, apiKey: 'node-messages' })
const body = { model: 'any', max_tokens: 500 }
const one = await messages.create({ ...body, messages: [hello] })
const history = [hello, { role: 'assistant', content: one.content }, on]
const two = await messages.stream({ ...body, messages: history }).finalMessage()
out.messages = [one.content[0].text, two.content[0].text]

const tools = {
  add: tool({
    description: 'adds',
    inputSchema: z.object({ a: z.number(), b: z.number() }),
    execute: async ({ a, b }) => a + b,
  }),
}
const models = {
  'ai-chat': createOpenAI({ baseURL: `${url}/v1`, apiKey: 'ai-chat' }).chat('any'),
  'ai-responses': createOpenAI({ baseURL: `${url}/v1`, apiKey: 'ai-responses' })('any'),
  'ai-messages': createAnthropic({ baseURL: `${url}/v1`, apiKey: 'ai-messages' })('any'),
}
for (const [name, model] of Object.entries(models)) {
  const prompt = 'What is 12 + 30?'
  const whole = await generateText({ model, tools, prompt, stopWhen: stepCountIs(3), maxRetries: 0 })
  const later = [{ role: 'user', content: prompt }, ...whole.response.messages, on]
  const stream = streamText({ model, tools, messages: later, maxRetries: 0, onError: () => {} })
  let text = ''
  for await (const piece of stream.textStream) text += piece
  out[name] = [whole.text, text]
}
process.stdout.write(`${JSON.stringify(out)}\n`)
