import { describe, expect, it } from 'vitest'
import type { SemanticCacheOptions } from '../../../src/plugins/cache/cache-options.ts'
import type { CacheQuery } from '../../../src/plugins/cache/semantic-cache.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { responsesClient } from '../../../src/formats/responses/client.ts'
import { chat, chatPrompt, constantEmbedder, createFixture, message } from './fixture.ts'

const STORED = 'What is the distance to the moon?'
const SIMILAR = "what's the distance to the moon"

const withSystem = (text: string, system = 'Be kind.', role = 'system'): Prompt =>
  chat({
    messages: [
      { role, content: system },
      { role: 'user', content: text },
    ],
  })
const inMessages = (text: string): Prompt =>
  message({ system: [{ type: 'text', text: 'Be kind.' }], messages: [{ role: 'user', content: text }] })
const inResponses = (input: string, fields: JsonObject): Prompt =>
  responsesClient.readPrompt({ model: 'chat/large', input, ...fields })
const withTools = (text: string, tools: Json): Prompt => message({ tools, messages: [{ role: 'user', content: text }] })
const toMessage = (content: string, index: number): JsonObject => ({
  role: index % 2 === 0 ? 'user' : 'assistant',
  content,
})
const asFollowUp = (text: string): Prompt =>
  chat({
    messages: [
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Hi!' },
      { role: 'user', content: text },
    ],
  })

async function hits(
  left: Prompt | string,
  right: Prompt | string,
  options: Partial<SemanticCacheOptions> = {},
  query: Partial<CacheQuery> = {},
): Promise<boolean> {
  const { recall, teach } = createFixture(options, {})
  await teach(left, 'stored', query)
  return (await recall(right, query)) === 'stored'
}

describe('a similar wording', () => {
  it.each([
    [STORED, SIMILAR],
    ['Explain why cats purr.', 'Could you explain why cats purr?'],
    ['How do I park a van?', 'Hi, how do I park a van? Thanks!'],
  ])('hits by default if it stands alone: %s | %s', async (left, right) => {
    expect(await hits(left, right)).toBe(true)
    expect(await hits(left, right, { similar: false })).toBe(false)
  })

  it.each<[string, Prompt, Prompt]>([
    ['with a system prompt', withSystem(STORED), withSystem(SIMILAR)],
    ['after an earlier turn', asFollowUp(STORED), asFollowUp(SIMILAR)],
    [
      'with developer instructions',
      withSystem(STORED, 'Be kind.', 'developer'),
      withSystem(SIMILAR, 'Be kind.', 'developer'),
    ],
    ['with a system array', inMessages(STORED), inMessages(SIMILAR)],
    [
      'with instructions',
      inResponses(STORED, { instructions: 'Be kind.' }),
      inResponses(SIMILAR, { instructions: 'Be kind.' }),
    ],
    [
      'with a field of text',
      chatPrompt(STORED, { preamble: 'Be kind.' }),
      chatPrompt(SIMILAR, { preamble: 'Be kind.' }),
    ],
    ['that is no question', chatPrompt("it's a cold day"), chatPrompt('it is a cold day')],
  ])('misses by default %s, but hits if a person asks for it', async (_, left, right) => {
    expect(await hits(left, right)).toBe(false)
    expect(await hits(left, left)).toBe(true)
    expect(await hits(left, right, { similar: true })).toBe(true)
    expect(await hits(left, right, { similarityThreshold: 0.95 })).toBe(true)
    expect(await hits(left, right, { embedder: constantEmbedder() })).toBe(true)
    expect(await hits(left, right, { verifyHit: () => true })).toBe(true)
    expect(await hits(left, right, {}, { similar: true })).toBe(true)
    expect(await hits(left, right, { similar: false }, { similar: true })).toBe(true)
    expect(await hits(left, right, { similar: true }, { similar: false })).toBe(false)
    const directives = { allowsRead: true, allowsWrite: true, threshold: 0.9 }
    expect(await hits(left, right, {}, { directives })).toBe(true)
    expect(await hits(left, right, { similar: false }, { directives })).toBe(false)
  })

  it.each([
    ['Proofread: do not go there', "Proofread: don't go there"],
    ['Is it correct? do not go there', "Is it correct? don't go there"],
    ['Translate do not go there', "Translate don't go there"],
    ['What is the tone of do not go there?', "What is the tone of don't go there?"],
    ['Is it rude?\ndo not go there', "Is it rude?\ndon't go there"],
    ['Is "do not go there" rude to the guest?', 'Is "do not go there" rude to the guest, please?'],
    ['What does it print - do not go?', "What does it print - don't go?"],
    ['What does f(x) do not print?', "What does f(x) don't print?"],
    ['List the words - cannot - will not', "List the words - can't - won't"],
    ['Describe the following do not go there', "Describe the following don't go there"],
  ])('misses by default if it may contain a text to work on: %s | %s', async (left, right) => {
    expect(await hits(left, right)).toBe(false)
    expect(await hits(right, left)).toBe(false)
  })

  it.each<[string, Prompt, Prompt]>([
    ['a prompt template', inResponses(STORED, { prompt: { id: 'p' } }), inResponses(SIMILAR, { prompt: { id: 'p' } })],
    [
      'a task in the system prompt',
      withSystem(STORED, 'You are a proofreader.'),
      withSystem(SIMILAR, 'You are a proofreader.'),
    ],
    ['a statement after a system prompt', withSystem("it's a cold day"), withSystem('it is a cold day')],
    ['a text to work on', chatPrompt("Proofread it's a cold day"), chatPrompt('Proofread it is a cold day')],
  ])('misses with %s, even if a person asks for it', async (_, left, right) => {
    expect(await hits(left, right, { similar: true })).toBe(false)
    expect(await hits(left, left, { similar: true })).toBe(true)
  })

  it.each([
    'You are a stenographer.',
    'Decide whether a native speaker wrote this.',
    'Store the note exactly and read it back.',
    'Good morning. The guest is about to speak.',
    'You are a helpful assistant. Record what the user says.',
  ])('misses below a system prompt that may ask for work on the text: %s', async (system) => {
    expect(await hits(withSystem(STORED, system), withSystem(SIMILAR, system), { similar: true })).toBe(false)
    expect(await hits(withSystem(STORED, system), withSystem(STORED, system), { similar: true })).toBe(true)
  })

  it.each(['You are a helpful assistant.', 'Answer the questions of our guests.', 'Be brief and kind.'])(
    'hits below a system prompt for answers, if a person asks for it: %s',
    async (system) => {
      expect(await hits(withSystem(STORED, system), withSystem(SIMILAR, system), { similar: true })).toBe(true)
    },
  )

  const parameters = { type: 'object', properties: { text: { type: 'string' } } }
  const format = { type: 'json_schema', name: 'out', schema: parameters }

  it.each<[string, (text: string) => Prompt]>([
    ['a tool', (text) => chatPrompt(text, { tools: [{ type: 'function', function: { name: 'save', parameters } }] })],
    ['a function', (text) => chatPrompt(text, { functions: [{ name: 'save', parameters }] })],
    ['a tool of messages', (text) => withTools(text, [{ name: 'save', input_schema: parameters }])],
    ['a tool of responses', (text) => inResponses(text, { tools: [{ type: 'function', name: 'save', parameters }] })],
    [
      'a schema',
      (text) =>
        chatPrompt(text, {
          response_format: { type: 'json_schema', json_schema: { name: 'out', schema: parameters } },
        }),
    ],
    ['a schema of responses', (text) => inResponses(text, { text: { format } })],
    ['a form of answer that the gateway does not know', (text) => chatPrompt(text, { guided_choice: ['yes', 'no'] })],
    ['a predicted answer', (text) => chatPrompt(text, { prediction: { type: 'content', content: 'Draft' } })],
  ])('misses with %s, which may repeat or work on the text', async (_, promptOf) => {
    expect(await hits(promptOf(STORED), promptOf(SIMILAR), { similar: true })).toBe(false)
    expect(await hits(promptOf(STORED), promptOf(STORED), { similar: true })).toBe(true)
  })

  it.each<JsonObject>([
    { tools: [] },
    { response_format: { type: 'text' } },
    { reasoning: { effort: 'low' } },
    { text: { format: { type: 'text' }, verbosity: 'low' } },
    { thinking: { type: 'disabled' } },
    { tool_choice: 'none' },
  ])('hits with fields that contain no text for the model, if a person asks for it: %j', async (fields) => {
    expect(await hits(chatPrompt(STORED, fields), chatPrompt(SIMILAR, fields), { similar: true })).toBe(true)
  })

  it.each<readonly [string, readonly string[]]>([
    ['a corrected question', ['helo wat time is it', 'Hello, what time is it?']],
    ['a translated question', ['Where is the dog?', 'Wo ist der Hund?', 'Is it late?', 'Ist es spät?']],
    ['a label', ['Could you help me?', 'polite']],
    ['a count', ['How are you?', '3 words']],
    ['a statement with its form', ['The dog sleeps.', 'The dog is asleep in the warm kitchen.']],
    ['a task in other words', ['Whatever comes next, put it into Dutch.', 'Of course. Send me the first line.']],
  ])('misses after an earlier turn with %s, which may be an example', async (_, turns) => {
    const after = (text: string): Prompt => chat({ messages: [...turns, text].map(toMessage) })
    expect(await hits(after(STORED), after(SIMILAR), { similar: true })).toBe(false)
    expect(await hits(after(STORED), after(STORED), { similar: true })).toBe(true)
  })

  it.each<readonly string[]>([
    ['Good morning!', 'Good morning! How can I help you?'],
    ['How far is the sun?', 'The sun is about 150 million kilometers away.'],
    ['Hi there', 'Hello!', 'Can you recommend a book on planets?', 'Try one of the books by Carl Sagan.'],
  ])('hits after an earlier turn that is a conversation, if a person asks for it: %s | %s', async (...turns) => {
    const after = (text: string): Prompt => chat({ messages: [...turns, text].map(toMessage) })
    expect(await hits(after(STORED), after(SIMILAR), { similar: true })).toBe(true)
  })

  it('misses after earlier texts of more than 100,000 characters, which are not searched for work', async () => {
    const after = (length: number, text: string): Prompt =>
      chat({
        messages: [`${'The sun is far. '.repeat(length / 16)}How far?`, 'It is 150 million kilometers away.', text].map(
          toMessage,
        ),
      })
    expect(await hits(after(90_000, STORED), after(90_000, SIMILAR), { similar: true })).toBe(true)
    expect(await hits(after(110_000, STORED), after(110_000, SIMILAR), { similar: true })).toBe(false)
    expect(await hits(after(110_000, STORED), after(110_000, STORED), { similar: true })).toBe(true)
  })

  it('must pass the guard also where it is asked for', async () => {
    expect(await hits(withSystem('It costs 5 EUR'), withSystem('It costs 6 EUR'), { similar: true })).toBe(false)
  })
})
