/**
 * npm run demo                 a long session over this project's own source, offline
 * npm run demo -- FILE         the first conversation of a JSON Lines file ({ id, messages } a line)
 * With OPENAI_API_KEY or ANTHROPIC_API_KEY set, a real upstream answers instead of the offline one.
 */
import { fileURLToPath } from 'node:url'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { anthropic, createGateway, extractive, memoryStore, openai, type Provider } from 'sluice'
import { serve } from 'sluice/node'
import { conversationFrom, ownSession, shortened, type Conversation } from './demo/conversation.ts'
import { toMessages } from './demo/to-messages.ts'

interface Row {
  readonly front: string
  readonly wanted: string
  readonly strategy: string
  readonly tokens: string
  readonly reduction: string
  readonly theoretical: string
  readonly actual: string
  readonly billed: string
}

const [file] = process.argv.slice(2)
const root = fileURLToPath(new URL('..', import.meta.url))
const conversation = file === undefined ? ownSession(root) : conversationFrom(file)
const { provider, model } = chooseUpstream()

const gateway = createGateway({ providers: [provider], store: memoryStore(), margin: 1.5 })
const key = await gateway.keys.create({ name: 'demo', budget_limit_cents: 5_000, budget_reset_duration: '1d' })
const server = await serve(gateway, { port: 0 })

console.log(`\nThe gateway listens on ${server.url}, model ${model}`)
console.log(`Key ${key.value.slice(0, 10)}… with a budget of $50 a day`)
console.log(`Conversation: ${conversation.name}, ${conversation.messages.length} messages`)

const chat = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key.value, maxRetries: 0 })
const messages = new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0 })

/** The tiers are shown one by one, so stored answers are left out but in the last row. */
const fresh = { 'Cache-Control': 'no-store' }
const wishes: Record<string, Record<string, string>> = {
  'off (X-Savings-Level)': { 'X-Savings-Level': 'off', ...fresh },
  'nothing: what pays': fresh,
  'tier 5, min': { 'X-Savings-Level': 'min', ...fresh },
  'tier 5, extreme': { 'X-Savings-Level': 'extreme', ...fresh },
  'tier 2 (X-Vanishing-Context)': { 'X-Vanishing-Context': 'true', ...fresh },
  'tier 3 (X-Svc-RLM)': { 'X-Svc-RLM': 'true', ...fresh },
  'tier 1, first time': {},
  'tier 1, asked again': {},
}
/** Without a header, above 20,000 and below 50,000 tokens. */
const forTier4 = shortened(conversation, 100_000)

const rows: Row[] = []
for (const [wanted, headers] of Object.entries(wishes)) rows.push(...(await onAllFronts(conversation, wanted, headers)))
rows.push(...(await onAllFronts(forTier4, 'tier 4 (a shorter conversation)', fresh)))
console.log('\nWhat was saved')
console.table(rows)
await server.close()
await gateway.close()

interface Asked {
  readonly wanted: string
  readonly headers: Record<string, string>
  readonly conversation: Conversation
}

async function onAllFronts(given: Conversation, wanted: string, headers: Record<string, string>): Promise<Row[]> {
  const asked = { wanted, headers, conversation: given }
  return [await chatJson(asked), await chatStream(asked), await messageJson(asked), await messageStream(asked)]
}

async function chatJson({ wanted, headers, conversation: { messages: turns } }: Asked): Promise<Row> {
  const { data, response } = await chat.chat.completions
    .create({ model, max_tokens: 300, messages: turns as OpenAI.ChatCompletionMessageParam[] }, { headers })
    .withResponse()
  show(`chat, JSON, wanted: ${wanted}`, data.choices[0]?.message.content ?? '')
  return rowOf('chat JSON', wanted, response.headers)
}

async function chatStream({ wanted, headers, conversation: { messages: turns } }: Asked): Promise<Row> {
  const stream = await chat.chat.completions.create(
    { model, max_tokens: 300, messages: turns as OpenAI.ChatCompletionMessageParam[], stream: true },
    { headers },
  )
  let text = ''
  let bill: Record<string, string | number> = {}
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? ''
    if ('svc_metrics' in chunk) bill = chunk.svc_metrics as typeof bill
  }
  show(`chat, stream, wanted: ${wanted}`, text)
  return {
    front: 'chat stream',
    wanted,
    strategy: String(bill['strategy']),
    tokens: `${bill['original_tokens']} -> ${bill['optimized_tokens']}`,
    reduction: `${bill['reduction_pct']}%`,
    theoretical: dollars(bill['theoretical_cost']),
    actual: dollars(bill['actual_cost']),
    billed: dollars(bill['billed_amount']),
  }
}

async function messageJson({ wanted, headers, conversation: { messages: turns } }: Asked): Promise<Row> {
  const { data, response } = await messages.messages
    .create({ model, max_tokens: 300, ...toMessages(turns) }, { headers })
    .withResponse()
  show(
    `messages, JSON, wanted: ${wanted}`,
    data.content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
  )
  return rowOf('messages JSON', wanted, response.headers)
}

async function messageStream({ wanted, headers, conversation: { messages: turns } }: Asked): Promise<Row> {
  const { data: stream, response } = await messages.messages
    .create({ model, max_tokens: 300, ...toMessages(turns), stream: true }, { headers })
    .withResponse()
  let text = ''
  let saved = ''
  for await (const event of stream) {
    if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text
    if (event.type === 'message_delta' && 'svc_metrics' in event) saved = JSON.stringify(event.svc_metrics)
  }
  show(`messages, stream, wanted: ${wanted}`, text, `svc_metrics at the end: ${saved}`)
  return rowOf('messages stream (estimate)', wanted, response.headers)
}

function rowOf(front: string, wanted: string, headers: Headers): Row {
  const value = (name: string): string => headers.get(`x-svc-${name}`) ?? '?'
  return {
    front,
    wanted,
    strategy: value('strategy'),
    tokens: `${value('original-tokens')} -> ${value('optimized-tokens')}`,
    reduction: value('reduction-pct'),
    theoretical: value('theoretical-cost'),
    actual: value('actual-cost'),
    billed: value('billed-amount'),
  }
}

function dollars(amount: string | number | undefined): string {
  return `$${Number(amount ?? 0).toFixed(6)}`
}

function show(title: string, text: string, ...more: readonly string[]): void {
  const short = text.length > 300 ? `${text.slice(0, 300)}…` : text
  console.log(`\n── ${title}`)
  for (const line of [short.replaceAll(/\s+/g, ' '), ...more]) console.log(`   ${line}`)
}

function chooseUpstream(): { readonly provider: Provider; readonly model: string } {
  const { OPENAI_API_KEY, ANTHROPIC_API_KEY } = process.env
  if (OPENAI_API_KEY !== undefined)
    return { provider: openai({ apiKey: OPENAI_API_KEY }), model: 'openai/gpt-4.1-mini' }
  if (ANTHROPIC_API_KEY !== undefined) {
    return { provider: anthropic({ apiKey: ANTHROPIC_API_KEY }), model: 'anthropic/claude-haiku-4-5' }
  }
  return { provider: extractive(), model: 'extractive/extractive' }
}
