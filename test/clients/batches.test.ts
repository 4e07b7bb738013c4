import Anthropic from '@anthropic-ai/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { sendRequest } from '../support/send-request.ts'
import { waitForBatch, readResults } from '../support/batches.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { gate } from '../support/upstream-events.ts'
import { recordingStore } from '../support/recording-store.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

function item(
  customId: string,
  params: Partial<Anthropic.MessageCreateParamsNonStreaming> = {},
): Anthropic.Messages.BatchCreateParams.Request {
  return {
    custom_id: customId,
    params: {
      model: MESSAGE_MODEL,
      max_tokens: 20,
      messages: [{ role: 'user', content: `I am ${customId}.` }],
      ...params,
    },
  }
}

describe('message batches through the official client', () => {
  it.each([
    ['a message upstream', MESSAGE_MODEL],
    ['a chat upstream', CHAT_MODEL],
  ])('go from create to results and deletion over %s', async (_, model) => {
    const { anthropic, upstream } = await stage()

    const made = await anthropic.messages.batches.create({
      requests: Array.from({ length: 7 }, (__, n) => item(`item-${n}`, { model })),
    })
    const batch = await waitForBatch(anthropic, made.id)
    const results = await readResults(anthropic, made.id)
    const deleted = await anthropic.messages.batches.delete(made.id)

    expect(made).toMatchObject({
      id: expect.stringMatching(/^msgbatch_/),
      type: 'message_batch',
      processing_status: 'in_progress',
      request_counts: { processing: 7, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
      ended_at: null,
      cancel_initiated_at: null,
      archived_at: null,
      results_url: null,
    })
    expect(Date.parse(made.expires_at) - Date.parse(made.created_at)).toBe(24 * 3_600_000)
    expect(batch).toMatchObject({
      processing_status: 'ended',
      request_counts: { processing: 0, succeeded: 7, errored: 0, canceled: 0, expired: 0 },
    })
    expect(results.map((one) => one.custom_id).toSorted()).toEqual(Array.from({ length: 7 }, (__, n) => `item-${n}`))
    for (const { result } of results) {
      expect(result).toMatchObject({
        type: 'succeeded',
        message: {
          type: 'message',
          content: [{ type: 'text', text: 'Hello from upstream.' }],
          svc_metrics: { savings_percent: 0 },
        },
      })
    }
    expect(deleted).toEqual({ id: made.id, type: 'message_batch_deleted' })
    await expect(anthropic.messages.batches.retrieve(made.id)).rejects.toBeInstanceOf(Anthropic.NotFoundError)
    expect(upstream.requests).toHaveLength(7)
  })

  it('an invalid item has an errored result, and the others are answered', async () => {
    const { anthropic } = await stage({ key: { name: 'k', allowed_models: ['anthropic/*'] } })

    const { id } = await anthropic.messages.batches.create({
      requests: [
        item('right'),
        item('no messages', { messages: 'none' as never }),
        item('no such model', { model: 'anthropic/none' }),
        item('not allowed', { model: CHAT_MODEL }),
        item('streamed', { stream: true as never }),
      ],
    })
    const { request_counts: counts } = await waitForBatch(anthropic, id)
    const results = new Map((await readResults(anthropic, id)).map((one) => [one.custom_id, one.result]))

    expect(counts).toMatchObject({ succeeded: 1, errored: 4 })
    expect(results.get('right')?.type).toBe('succeeded')
    const errors = ['no messages', 'no such model', 'not allowed', 'streamed'].map((name) => results.get(name))
    expect(errors).toMatchObject(
      [
        { type: 'errored', error: { type: 'error', error: { type: 'invalid_request_error' }, request_id: /^req_/ } },
        { type: 'errored', error: { type: 'error', error: { type: 'invalid_request_error' } } },
        { type: 'errored', error: { type: 'error', error: { type: 'permission_error' } } },
        { type: 'errored', error: { type: 'error', error: { type: 'invalid_request_error' } } },
      ].map((expected) => ({ ...expected, error: { ...expected.error, request_id: expect.stringMatching(/^req_/) } })),
    )
  })

  it('each item is billed, limited and recorded like a request', async () => {
    const store = recordingStore()
    const { anthropic, gateway, keyId } = await stage({
      store,
      reply: () => ({ text: 'Yes.', usage: { input_tokens: 100, output_tokens: 50 } }),
    })

    const { id } = await anthropic.messages.batches.create({ requests: ['a', 'b', 'c'].map((name) => item(name)) })
    await waitForBatch(anthropic, id)

    const usage = await gateway.keys.usage(keyId)
    const audit = await gateway.audit.read({ keyId })
    // The creation of the batch is a request, too.
    expect(usage).toMatchObject({ requests: 4, cost: { billedUsd: 0.0009 } })
    expect(audit.records.map((record) => record.costUsd)).toEqual([0.0003, 0.0003, 0.0003])
    expect(await store.maxHeld()).toBe(0)
  })

  it('creating one counts as one request against the request limit, and each item as another', async () => {
    const { anthropic, gateway, keyId, upstream } = await stage({
      key: { name: 'k', rate_limit_requests: 3, rate_limit_reset_duration: '1M' },
    })
    const create = () => anthropic.messages.batches.create({ requests: [item('a')] })

    const { id } = await create()
    await waitForBatch(anthropic, id)
    await create()
    await expect(create()).rejects.toMatchObject({
      status: 429,
      error: { type: 'error', error: { type: 'rate_limit_error' } },
    })
    expect(upstream.requests).toHaveLength(1)
    expect(await gateway.keys.rateLimit(keyId)).toMatchObject({ requestRemaining: 0 })
    expect((await anthropic.messages.batches.list()).data).toHaveLength(2)
  })

  it('one whose body is rejected does not count against the limit', async () => {
    const { anthropic, gateway, keyId } = await stage({ key: { name: 'k', rate_limit_requests: 1 } })
    await expect(anthropic.messages.batches.create({ requests: [] })).rejects.toMatchObject({ status: 400 })
    expect(await gateway.keys.rateLimit(keyId)).toMatchObject({ requestRemaining: 1 })
  })

  it('items share the cache with one another', async () => {
    const { anthropic, upstream } = await stage({ cache: {} })
    const same = { messages: [{ role: 'user' as const, content: 'What is a sluice?' }] }

    const { id } = await anthropic.messages.batches.create({
      requests: Array.from({ length: 9 }, (_, n) => item(`item-${n}`, same)),
    })
    await waitForBatch(anthropic, id)

    expect(await readResults(anthropic, id)).toHaveLength(9)
    expect(upstream.requests).toHaveLength(1)
  })

  it('items that the budget does not cover are errored', async () => {
    const { anthropic } = await stage({
      key: { name: 'poor', budget_limit_cents: 0, budget_reset_duration: '1M' },
    })

    const { id } = await anthropic.messages.batches.create({ requests: [item('a')] })
    await waitForBatch(anthropic, id)

    expect((await readResults(anthropic, id))[0]?.result).toMatchObject({
      type: 'errored',
      error: { error: { type: 'budget_exceeded_error' } },
    })
  })

  it('cancelling ends the items that have not begun, and running items complete', async () => {
    const hold = gate()
    const { anthropic, upstream } = await stage({
      batches: { concurrency: 1 },
      reply: async () => {
        await hold.opened
        return 'Done.'
      },
    })

    const { id } = await anthropic.messages.batches.create({ requests: ['a', 'b', 'c'].map((name) => item(name)) })
    await upstream.waitForRequest(1)
    const cancelled = await anthropic.messages.batches.cancel(id)
    await expect(anthropic.messages.batches.delete(id)).rejects.toBeInstanceOf(Anthropic.BadRequestError)
    await expect(anthropic.messages.batches.results(id)).rejects.toThrow('results_url')
    hold.open()
    const batch = await waitForBatch(anthropic, id)

    expect(cancelled).toMatchObject({ processing_status: 'canceling', cancel_initiated_at: expect.any(String) })
    expect(batch.request_counts).toEqual({ processing: 0, succeeded: 1, errored: 0, canceled: 2, expired: 0 })
    expect((await readResults(anthropic, id)).map((one) => one.result.type).toSorted()).toEqual([
      'canceled',
      'canceled',
      'succeeded',
    ])
  })

  it('the batch of another key does not exist', async () => {
    const { anthropic, gateway, url } = await stage()
    const { id } = await anthropic.messages.batches.create({ requests: [item('a')] })
    await waitForBatch(anthropic, id)
    const other = new Anthropic({ baseURL: url, apiKey: (await gateway.keys.create({ name: 'other' })).value })

    const { batches } = other.messages
    const attempts = [
      () => batches.retrieve(id),
      () => batches.cancel(id),
      () => batches.delete(id),
      () => batches.results(id),
    ]
    for (const attempt of attempts) await expect(attempt()).rejects.toBeInstanceOf(Anthropic.NotFoundError)
    expect((await batches.list()).data).toEqual([])
    expect(await readResults(anthropic, id)).toHaveLength(1)
  })

  it('are listed newest first, in pages in both directions', async () => {
    let now = Date.now()
    const { anthropic } = await stage({ runtime: { random: () => 0, now: () => (now += 1) } })
    const made: string[] = []
    for (let n = 0; n < 5; n += 1) {
      made.unshift((await anthropic.messages.batches.create({ requests: [item('a')] })).id)
    }

    const listed: string[] = []
    for await (const batch of anthropic.messages.batches.list({ limit: 2 })) listed.push(batch.id)
    const back = await anthropic.messages.batches.list({ limit: 2, before_id: made[4] ?? '' })

    expect(listed).toEqual(made)
    expect(back.data.map((batch) => batch.id)).toEqual(made.slice(2, 4))
    expect(back).toMatchObject({ has_more: true, first_id: made[2], last_id: made[3] })
  })

  it('of a deleted key end with authentication errors', async () => {
    const hold = gate()
    const { anthropic, gateway, upstream, keyId } = await stage({
      batches: { concurrency: 1 },
      reply: async () => {
        await hold.opened
        return 'Done.'
      },
    })
    const { id } = await anthropic.messages.batches.create({ requests: ['a', 'b'].map((name) => item(name)) })
    await upstream.waitForRequest(1)
    await gateway.keys.update(keyId, { is_active: false })
    hold.open()
    await gateway.batches.work()
    await gateway.keys.update(keyId, { is_active: true })
    await waitForBatch(anthropic, id)

    const results = await readResults(anthropic, id)
    expect(results.map((one) => one.result)).toMatchObject([
      { type: 'succeeded' },
      { type: 'errored', error: { error: { type: 'authentication_error' } } },
    ])
  })
})

describe('an invalid batch', () => {
  const right = item('a')

  it.each([
    ['no requests', {}, 'requests'],
    ['an empty list', { requests: [] }, 'requests'],
    ['too many requests', { requests: Array.from({ length: 10_001 }, () => right) }, 'requests'],
    ['a request that is a text', { requests: ['a'] }, 'requests.0'],
    ['no custom_id', { requests: [{ params: right.params }] }, 'requests.0.custom_id'],
    ['an empty custom_id', { requests: [{ ...right, custom_id: '' }] }, 'requests.0.custom_id'],
    ['a custom_id of 65 characters', { requests: [{ ...right, custom_id: 'a'.repeat(65) }] }, 'requests.0.custom_id'],
    ['the same custom_id twice', { requests: [right, right] }, 'requests.1.custom_id'],
    ['no params', { requests: [{ custom_id: 'a' }] }, 'requests.0.params'],
  ])('is rejected with the path of the invalid field: %s', async (_, body, param) => {
    const { url, secret } = await stage()

    const reply = await sendRequest({ url, secret }, JSON.stringify(body), { path: '/v1/messages/batches' })

    expect(reply.status).toBe(400)
    expect(reply.error).toMatchObject({ type: 'invalid_request_error', param })
  })

  it.each(['limit=0', 'limit=1001', 'limit=x', 'after_id=x', 'before_id=key:1'])(
    'a list by %s is refused',
    async (query) => {
      const { url, secret } = await stage()

      const reply = await sendRequest({ url, secret }, undefined, {
        method: 'GET',
        path: `/v1/messages/batches?${query}`,
      })

      expect(reply.status).toBe(400)
    },
  )

  it('nothing is shown without a key', async () => {
    const { url } = await stage()

    for (const [method, path] of [
      ['POST', ''],
      ['GET', ''],
      ['GET', '/msgbatch_1'],
      ['POST', '/msgbatch_1/cancel'],
      ['GET', '/msgbatch_1/results'],
      ['DELETE', '/msgbatch_1'],
    ]) {
      const reply = await sendRequest({ url, secret: '' }, undefined, {
        ...(method !== undefined && { method }),
        path: `/v1/messages/batches${path}`,
        secret: null,
      })
      expect(reply.status).toBe(401)
    }
  })
})
