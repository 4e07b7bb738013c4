/**
 * npm run demo            five parts, offline, in a few seconds
 * npm run demo -- FILE    the first conversation of a JSON Lines file ({ id, messages } per line) at each savings level
 */
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { createGateway, memoryStore, type Provider } from 'sluice'
import { extractive } from 'sluice/testing'
import { serve } from 'sluice/node'
import { conversationFrom, type Conversation } from './demo/conversation.ts'
import { bar, bold, dim, dollars, green, heading, line, yellow } from './demo/print.ts'
import { factsIn, supportCase } from './demo/support-case.ts'

/** Wraps a provider so that it records the last prompt that it receives. */
function recordPrompts(provider: Provider): { readonly provider: Provider; readonly lastPrompt: () => string } {
  let sent = ''
  return {
    provider: {
      ...provider,
      complete: (call) => {
        sent = JSON.stringify(call.prompt.messages)
        return provider.complete(call)
      },
    },
    lastPrompt: () => sent,
  }
}

const [file] = process.argv.slice(2)
const model = 'extractive/extractive'
const { provider, lastPrompt } = recordPrompts(extractive())
const gateway = createGateway({
  providers: [provider],
  store: memoryStore(),
  // Below a system prompt, similar wordings are compared only on request.
  cache: { similar: true },
  margin: 1.5,
  log: () => {},
})
const server = await serve(gateway, { port: 0 })

/** Creates a key and returns an official client that uses it. */
async function createKeyAndClient(name: string): Promise<OpenAI> {
  return createClient(await gateway.keys.create({ name }))
}

function createClient(key: { readonly value: string }): OpenAI {
  return new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key.value, maxRetries: 0 })
}

async function askOnce(): Promise<void> {
  heading('1. A request and its bill', 'src/billing/bill.ts')
  const client = await createKeyAndClient('first app')
  const { data, response } = await client.chat.completions
    .create({ model, messages: [{ role: 'user', content: 'A sluice is a gate for water. What is a sluice?' }] })
    .withResponse()
  const amount = (header: string): string => response.headers.get(`x-svc-${header}`) ?? ''
  line(`answer       ${data.choices[0]?.message.content}`)
  line(`list price   ${amount('theoretical-cost')}`)
  line(`billed       ${green(amount('billed-amount'))}  list price × margin 1.5, in the header X-Svc-Billed-Amount`)
}

async function spendBudget(): Promise<void> {
  heading('2. 200 concurrent requests on a budget that covers about 20', 'src/governance/ledger.ts')
  const cents = 1
  const key = await gateway.keys.create({ name: 'invoices', budgetLimitCents: cents, budgetResetDuration: '1d' })
  const client = createClient(key)
  const question = (index: number): string =>
    `Invoice ${index}: ${'one line of a long invoice. '.repeat(80)} What is in invoice ${index}?`
  const statuses = await Promise.all(
    Array.from({ length: 200 }, (_, index) =>
      client.chat.completions
        .create({ model, max_tokens: 16, messages: [{ role: 'user', content: question(index) }] })
        .then(() => 200)
        .catch((error: unknown) => (error instanceof OpenAI.APIError ? error.status : 0)),
    ),
  )
  const count = (status: number): number => statuses.filter((each) => each === status).length
  const spent = (await gateway.keys.usage(key.id)).cost.billedUsd
  line(`served ${green(String(count(200)))}, rejected with 402: ${yellow(String(count(402)))}`)
  line(`billed ${dollars(spent)} of ${dollars(cents / 100)}, remaining ${dollars(cents / 100 - spent)}`)
}

async function askAgain(): Promise<void> {
  heading('3. The same question reworded, and a different one that looks similar', 'src/plugins/cache/guard.ts')
  const client = await createKeyAndClient('cached')
  const facts = 'Answer from these facts: a room costs 80 EUR for 2 nights and 120 EUR for 3 nights.'
  for (const question of [
    'What does a room cost for 2 nights?',
    'Hi! What does a room cost for 2 nights, please?',
    'What does a room cost for 3 nights?',
  ]) {
    const messages = [{ role: 'system', content: facts } as const, { role: 'user', content: question } as const]
    const { response } = await client.chat.completions.create({ model, messages }).withResponse()
    const cache = response.headers.get('x-svc-cache') ?? ''
    line(
      `${(cache === 'HIT' ? green : yellow)(cache.padEnd(5))} ${response.headers.get('x-svc-billed-amount')}  ${question}`,
    )
  }
}

async function saveTokens({ name, messages }: Conversation, showsFacts: boolean): Promise<void> {
  heading(
    `${showsFacts ? '4. ' : ''}Savings levels on ${name} of ${messages.length} messages`,
    'src/plugins/savings/selection-tiers.ts',
  )
  const client = await createKeyAndClient('long conversation')
  line(
    dim(`level    tokens sent                            list price   vendor cost${showsFacts ? '   facts kept' : ''}`),
  )
  for (const level of ['off', 'min', 'med', 'max', 'extreme']) {
    const { response } = await client.chat.completions
      .create(
        { model, max_tokens: 200, messages: messages as OpenAI.ChatCompletionMessageParam[] },
        { headers: { 'X-Savings-Level': level, 'Cache-Control': 'no-store' } },
      )
      .withResponse()
    const value = (header: string): string => response.headers.get(`x-svc-${header}`) ?? ''
    const [before, after] = [Number(value('original-tokens')), Number(value('optimized-tokens'))]
    const { kept, of } = factsIn(lastPrompt())
    line(
      `${level.padEnd(8)} ${bar(after / before)} ${String(after).padStart(7)}   ${value('theoretical-cost').padStart(11)}   ${value('actual-cost').padStart(11)}${showsFacts ? `       ${kept} of ${of}` : ''}`,
    )
  }
}

async function resumeStream(): Promise<void> {
  heading('5. A stream that is interrupted and resumed', 'src/streams/event-buffer.ts')
  const key = await gateway.keys.create({ name: 'streams' })
  const client = new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0 })
  const content =
    'The gate of the lock lifts at seven in the morning. The crew checks the weir at eight. The gate of the lock closes at nine in the evening. When does the gate of the lock lift, and when does it close?'
  const stream = await client.messages.create(
    { model, max_tokens: 100, stream: true, messages: [{ role: 'user', content }] },
    { headers: { 'X-Svc-Detach': 'true' } },
  )
  let [id, eventCount, text] = ['', 0, '']
  for await (const event of stream) {
    eventCount += 1
    if (event.type === 'message_start') id = event.message.id
    if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text
    if (eventCount === 4) break
  }
  line(`${yellow('cut')}      after event ${eventCount}: ${JSON.stringify(text)}`)
  const rest = await fetch(`${server.url}/v1/messages/${id}/streams`, {
    method: 'POST',
    headers: { 'x-api-key': key.value, 'last-event-id': String(eventCount) },
  })
  const pieces = [...(await rest.text()).matchAll(/"text_delta","text":("(?:[^"\\]|\\.)*")/g)]
  line(
    `${green('resumed')}  ${JSON.stringify(pieces.map(([, piece]) => JSON.parse(piece ?? '""') as string).join(''))}`,
  )
}

if (file === undefined) {
  console.log(bold('sluice: an LLM gateway inside your own server, here with an offline model'))
  await askOnce()
  await spendBudget()
  await askAgain()
  await saveTokens(supportCase(), true)
  await resumeStream()
  heading('Next steps', 'README.md')
  line('your own conversation   npm run demo -- FILE   ({ id, messages } per line)')
  line('a real model            providers: [openai({ apiKey })] or [anthropic({ apiKey })]')
} else {
  await saveTokens(conversationFrom(file), false)
}
await server.close()
await gateway.close()
