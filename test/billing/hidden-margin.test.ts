import { describe, expect, it } from 'vitest'
import { hideStoredMargin } from '../../src/streams/stored-margin.ts'
import { createGateway, readBill, type Gateway, type LogRecord } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import {
  chatCompletion,
  completeBatch,
  createCluster,
  createItems,
  createRequest,
  type Cluster,
} from '../plugins/batches/cluster.ts'

const HIDDEN =
  /x-svc-(?:savings-usd|theoretical-cost|actual-cost|profit-margin)|"(?:theoretical|actual|savings|margin|original_cost|your_cost|profit)\w*"/i

const CHAT = '/v1/chat/completions'
const MESSAGES = '/v1/messages'
const RESPONSES = '/v1/responses'
const OPTIONS = { headers: { margin: false }, margin: 2 }

function bodyOf(path: string, stream: boolean): object {
  if (path === RESPONSES) return { model: 'up/model', input: 'Hello?', max_output_tokens: 20, stream }
  return { model: 'up/model', messages: [{ role: 'user', content: 'Hello?' }], max_tokens: 20, stream }
}

function responseStream(): Response {
  const chunk = (delta: object, finish: string | null): string =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'model', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
  const usage = { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 }
  const last = `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'model', choices: [], usage })}\n\n`
  const text = `${chunk({ role: 'assistant', content: 'Yes.' }, null)}${chunk({}, 'stop')}${last}data: [DONE]\n\n`
  return new Response(text, { headers: { 'content-type': 'text/event-stream' } })
}

/** Starts a gateway with the default option. Its `close` waits for its writes, and leaves the store open. */
function startStoring({ startGateway, store }: Cluster): Gateway {
  return startGateway({ ...store, close: async () => {} })
}

function startCluster(): Cluster {
  const cluster = createCluster()
  cluster.response = (body) => (body.includes('"stream":true') ? responseStream() : chatCompletion('Yes.'))
  return cluster
}

interface Sent {
  readonly headers: Headers
  readonly text: string
}

async function send(
  gateway: Gateway,
  secret: string,
  path: string,
  { body, headers }: { readonly body?: object; readonly headers?: Record<string, string> } = {},
): Promise<Sent> {
  const response = await gateway.fetch(
    new Request(`http://gateway${path}`, {
      method: body === undefined && headers === undefined ? 'GET' : 'POST',
      headers: { 'x-api-key': secret, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }),
  )
  expect(response.status).toBe(200)
  return { headers: response.headers, text: await response.text() }
}

const metricsIn = (text: string): unknown => JSON.parse(/"svc_metrics":(\{[^{}]*\})/.exec(text)?.[1] ?? 'null')

const DETAILS = {
  original_tokens: 100,
  optimized_tokens: 100,
  tokens_saved: 0,
  reduction_pct: 0,
  strategy: 'Passthrough (no optimization needed)',
  cache: 'MISS',
  billed_amount: 0.0004,
}

describe('headers: { margin: false }', () => {
  it.each([
    [CHAT, true, DETAILS],
    [MESSAGES, false, { billed_amount: 0.0004 }],
    [MESSAGES, true, { billed_amount: 0.0004 }],
    [RESPONSES, false, DETAILS],
    [RESPONSES, true, DETAILS],
  ] as const)('leaves the billed amount in %s (stream: %s)', async (path, stream, metrics) => {
    const cluster = startCluster()
    const gateway = cluster.startGateway(cluster.store, OPTIONS)
    const { value: secret } = await gateway.keys.create({ name: 'k' })

    const { headers, text } = await send(gateway, secret, path, { body: bodyOf(path, stream) })

    expect(metricsIn(text)).toEqual(metrics)
    expect(JSON.stringify([...headers])).not.toMatch(HIDDEN)
    expect(headers.get('x-svc-billed-amount')).not.toBeNull()
    expect(headers.get('x-svc-original-tokens')).not.toBeNull()
  })

  it('readBill returns undefined for the hidden amounts', async () => {
    const cluster = startCluster()
    const gateway = cluster.startGateway(cluster.store, OPTIONS)
    const { value: secret } = await gateway.keys.create({ name: 'k' })

    const bill = readBill(await send(gateway, secret, CHAT, { body: bodyOf(CHAT, false) }))

    expect(bill).toMatchObject({ originalTokens: 100, billedUsd: 0.0004, cache: 'MISS', isEstimated: false })
    expect([bill?.margin, bill?.theoreticalCostUsd, bill?.actualCostUsd, bill?.savingsUsd]).toEqual(
      Array.from({ length: 4 }, () => undefined),
    )
  })

  it('an explanation has the billed amount only', async () => {
    const cluster = startCluster()
    const gateway = cluster.startGateway(cluster.store, OPTIONS)
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const headers = { 'x-svc-explain': 'true' }

    const { text } = await send(gateway, secret, CHAT, { body: bodyOf(CHAT, false), headers })

    const explanation = JSON.parse(text) as { readonly cost: object }
    expect(Object.keys(explanation.cost)).toEqual(['billed_usd', 'max_usd', 'estimated'])
    expect(explanation).not.toHaveProperty('margin')
    expect(text).not.toMatch(HIDDEN)
  })

  it('keeps every amount in the usage of a key, the metrics and the log', async () => {
    const records: LogRecord[] = []
    const cluster = startCluster()
    const gateway = cluster.startGateway(cluster.store, { ...OPTIONS, log: (record) => records.push(record) })
    const { value: secret, id } = await gateway.keys.create({ name: 'k' })

    await send(gateway, secret, CHAT, { body: bodyOf(CHAT, false) })

    expect((await gateway.keys.usage(id)).cost).toMatchObject({
      theoreticalUsd: 0.0002,
      actualUsd: 0.0002,
      billedUsd: 0.0004,
    })
    expect(gateway.metrics.summary()).toMatchObject({ billing: { theoreticalCostUsd: 0.0002 } })
    expect(records).toContainEqual(expect.objectContaining({ theoretical_usd: 0.0002 }))
  })

  it.each([
    [CHAT, false],
    [CHAT, true],
    [MESSAGES, false],
    [MESSAGES, true],
    [RESPONSES, false],
    [RESPONSES, true],
  ])('hides the amounts in a replay of %s that another process stored with them (stream: %s)', async (path, stream) => {
    const cluster = startCluster()
    const storing = startStoring(cluster)
    const { value: secret } = await storing.keys.create({ name: 'k' })
    const request = { body: bodyOf(path, stream), headers: { 'idempotency-key': 'once' } }
    const first = await send(storing, secret, path, request)
    expect(JSON.stringify([...first.headers])).toMatch(HIDDEN)
    await storing.close()
    const gateway = cluster.startGateway(cluster.store, OPTIONS)

    const replayed = await send(gateway, secret, path, request)

    expect(replayed.headers.get('idempotency-replayed')).toBe('true')
    expect(JSON.stringify([...replayed.headers]) + replayed.text).not.toMatch(HIDDEN)
    expect(replayed.text.length).toBeGreaterThan(20)
    expect(cluster.calls).toBe(1)
  })

  it.each([false, true])(
    'hides the amounts in a stored message that is streamed again (stream: %s)',
    async (stream) => {
      const cluster = startCluster()
      const storing = startStoring(cluster)
      const { value: secret } = await storing.keys.create({ name: 'k' })
      const first = await send(storing, secret, MESSAGES, { body: bodyOf(MESSAGES, stream) })
      const id = /"id":"(msg_[^"]+)"/.exec(first.text)?.[1]
      expect(first.text).toMatch(HIDDEN)
      await storing.close()
      const gateway = cluster.startGateway(cluster.store, OPTIONS)

      const { text } = await send(gateway, secret, `${MESSAGES}/${id}/streams`, { headers: { 'last-event-id': '0' } })

      expect(text).toContain('message_stop')
      expect(text).not.toMatch(HIDDEN)
    },
  )

  it('hides the amounts in a stored response and in stored batch results', async () => {
    const cluster = startCluster()
    const storing = startStoring(cluster)
    const { value: secret } = await storing.keys.create({ name: 'k' })
    const first = await send(storing, secret, RESPONSES, { body: bodyOf(RESPONSES, false) })
    const responseId = /"id":"(resp_[^"]+)"/.exec(first.text)?.[1]
    const created = await storing.fetch(createRequest(secret, 'POST', '', createItems(2)))
    const batch = (await created.json()) as { readonly id: string }
    await completeBatch(cluster, secret, batch.id, storing)
    await storing.close()
    const gateway = cluster.startGateway(cluster.store, OPTIONS)

    const response = await send(gateway, secret, `${RESPONSES}/${responseId}`)
    const results = await send(gateway, secret, `/v1/messages/batches/${batch.id}/results`)

    expect(metricsIn(response.text)).toMatchObject({ billed_amount: 0.0002 })
    expect(response.text).not.toMatch(HIDDEN)
    expect(results.text.trim().split('\n')).toHaveLength(2)
    expect(results.text).not.toMatch(HIDDEN)
  })

  it.each([{ margin: 'no' }, { margin: 0 }, { cost: false }, false])('rejects headers: %j', (headers) => {
    expect(() => createGateway({ providers: [extractive()], headers: headers as object })).toThrow(/headers/)
  })
})

describe('hideStoredMargin', () => {
  it.each([
    ['{"svc_metrics":{"savings_percent":0,"original_cost":1e-7,"your_cost":0.1}}', '{"svc_metrics":{}}'],
    [
      '{"svc_metrics":{"billed_amount":2,"profit_margin":1.5},"a":12345678901234567890}',
      '{"svc_metrics":{"billed_amount":2},"a":12345678901234567890}',
    ],
    [
      '{"svc_metrics":{"actual_cost":1,"strategy":"x","savings_usd":-1,"ignored":["a","b"]}}',
      '{"svc_metrics":{"strategy":"x","ignored":["a","b"]}}',
    ],
  ])('changes %s', (stored, expected) => {
    expect(hideStoredMargin(stored)).toBe(expected)
  })

  it.each([
    JSON.stringify({ content: '{"svc_metrics":{"profit_margin":1.5}}' }),
    '{"original_cost":1,"margin":2}',
    '{"svc_metrics":{',
    '',
  ])('leaves %s unchanged', (stored) => {
    expect(hideStoredMargin(stored)).toBe(stored)
  })
})
