import { afterEach, describe, expect, it, vi } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import type { Store } from '../../src/core/store.ts'
import { createGateway, memoryStore, type Gateway, type LogRecord } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { waitForBatch, readResults } from '../support/batches.ts'
import { sendRequest, ENDPOINTS } from '../support/send-request.ts'
import { MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { post } from '../support/read-stream.ts'
import { waitUntil } from '../support/wait-until.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close().catch(() => {})))
})

interface Logged extends Stage {
  /** Records of level ERROR that have a cause. */
  readonly errors: () => readonly LogRecord[]
}

async function startOne(options: StageOptions = {}): Promise<Logged> {
  const records: LogRecord[] = []
  const stage = await startStage({ log: (record) => records.push(record), ...options })
  stages.push(stage)
  return { ...stage, errors: () => records.filter(isError) }
}

function isError(record: LogRecord): boolean {
  return record.level === 'ERROR' && 'cause' in record && record.cause !== undefined
}

/** An error as a bug in the code throws it. */
function bug(): never {
  throw new TypeError('undefined is not a function')
}

/** The same in a store, whose other errors mean that it is unavailable. */
function storeBug(): never {
  throw new RangeError('index out of range')
}

const TRACE = {
  name: 'TypeError',
  message: 'undefined is not a function',
  stack: expect.stringContaining('traces.test.ts'),
}

const STORE_TRACE = { name: 'RangeError', message: 'index out of range', stack: expect.any(String) }

describe('an internal failure', () => {
  it.each(ENDPOINTS)(
    'of a request on the $name endpoint logs its cause, which is not sent to the caller',
    async (endpoint) => {
      const stage = await startOne({ margin: bug })
      const reply = await sendRequest(stage, endpoint.body, { path: endpoint.path })

      expect(reply.status).toBe(500)
      expect(reply.text).not.toContain('undefined is not a function')
      expect(stage.errors()).toMatchObject([{ request_id: reply.headers['x-request-id'], cause: TRACE }])
    },
  )

  it.each([
    ['GET', '/v1/models'],
    ['POST', '/v1/messages/msg_1/streams'],
    ['POST', '/v1/messages/count_tokens'],
    ['GET', '/v1/messages/batches'],
  ])('of %s %s logs its cause once', async (method, path) => {
    const store = memoryStore()
    let isBroken = false
    const levels: Store['levels'] = (counters) => (isBroken ? storeBug() : store.levels(counters))
    const list: Store['list'] = (prefix, options) => (isBroken ? storeBug() : store.list(prefix, options))
    const stage = await startOne({
      store: { ...store, levels, list },
      key: { name: 'k', rate_limit_requests: 5 },
      margin: () => (isBroken ? bug() : 1),
      batches: { concurrency: 0 },
    })
    isBroken = true
    const body = method === 'POST' ? { model: MESSAGE_MODEL, messages: [{ role: 'user', content: 'Hi' }] } : undefined
    const reply = await sendRequest(stage, body, { method, path })

    expect(reply.status).toBe(500)
    expect(stage.errors()).toMatchObject([
      { request_id: reply.headers['x-request-id'], cause: path.endsWith('count_tokens') ? TRACE : STORE_TRACE },
    ])
  })

  it('that is a value without a name or a stack is logged, too', async () => {
    const stage = await startOne({
      margin: () => {
        throw 'just a text'
      },
    })
    await sendRequest(stage, ENDPOINTS[0]?.body)
    expect(stage.errors()).toMatchObject([{ cause: { name: 'string', message: 'just a text' } }])
  })
})

describe('gateway.fetch', () => {
  it.each<[string, NonNullable<StageOptions['runtime']>, () => Request]>([
    ['the uuid of the runtime throws', { uuid: bug }, () => new Request('http://gateway/health')],
    [
      'the request has no valid address',
      {},
      () => Object.defineProperty(new Request('http://gateway/'), 'url', { value: 'not an address' }),
    ],
    [
      'the request throws at every look',
      {},
      () => Object.defineProperty(new Request('http://gateway/v1/models'), 'headers', { get: bug }),
    ],
  ])('answers 500 and never throws when %s', async (_, runtime, request) => {
    const records: LogRecord[] = []
    const gateway = createGateway({ providers: [extractive()], log: (record) => records.push(record), runtime })
    let pending: Promise<Response> | undefined
    expect(() => {
      pending = gateway.fetch(request())
    }).not.toThrow()
    const response = await pending
    expect(response?.status).toBe(500)
    expect(response?.headers.get('x-request-id')).toMatch(/^req_/)
    expect(records.some(isError)).toBe(true)
    await gateway.close()
  })
})

describe('closing a gateway', () => {
  it('runs every step after a failed one, and rejects with its error', async () => {
    const store = memoryStore()
    const closed: string[] = []
    const close = (): Promise<void> => {
      closed.push('store')
      return Promise.reject(new Error('the store would not close'))
    }
    const batches = { waitUntil: () => {} }
    const log = vi.fn()
    const gateway: Gateway = createGateway({
      providers: [extractive()],
      store: {
        ...store,
        close,
        settle: () => Promise.reject(new Error('away')),
      },
      batches,
      log,
    })
    await expect(gateway.close()).rejects.toThrow('the store would not close')
    expect(closed).toEqual(['store'])
    const events = log.mock.calls.map(([record]) => record as JsonObject).filter(({ level }) => level === 'ERROR')
    expect(events).toMatchObject([{ cause: { message: 'the store would not close' } }])
  })
})

describe('background work', () => {
  it.each([
    ['its request', 'batch-request', '00001'],
    ['its result', 'batch-result', 'b'],
  ])('logs once that a batch item fails on reading %s, and stores an error as its result', async (_, prefix, name) => {
    const store = memoryStore()
    let isBroken = true
    const get: Store['get'] = (key) => {
      if (!isBroken || !key.startsWith(prefix) || !key.endsWith('00001')) return store.get(key)
      // The request of an item is read again for the `custom_id`.
      isBroken = prefix === 'batch-request'
      return storeBug()
    }
    const stage = await startOne({ store: { ...store, get } })
    const question = { model: MESSAGE_MODEL, max_tokens: 5, messages: [{ role: 'user' as const, content: 'Hi' }] }
    const { id } = await stage.anthropic.messages.batches.create({
      requests: ['a', 'b', 'c'].map((item) => ({ custom_id: item, params: question })),
    })
    const batch = await waitForBatch(stage.anthropic, id)

    expect(batch.request_counts).toMatchObject({ succeeded: 2, errored: 1 })
    const results = await readResults(stage.anthropic, id)
    const outcomes = results.map((item): [string, string] => [item.custom_id, item.result.type])
    expect(outcomes.toSorted()).toEqual(
      [
        ['a', 'succeeded'],
        [name, 'errored'],
        ['c', 'succeeded'],
      ].toSorted(),
    )
    expect(stage.errors()).toMatchObject([{ batch_id: id, cause: STORE_TRACE }])
  })

  it('logs an internal error of the trial of a tier, and answers the request', async () => {
    const stage = await startOne({ savings: { shadowShare: 1, tiers: bug } })
    const response = await post(stage, '/v1/messages', {
      body: { model: MESSAGE_MODEL, max_tokens: 5, messages: [{ role: 'user', content: 'Hi' }] },
    })
    expect(response.status).toBe(200)
    await waitUntil(() => stage.errors().length > 0)
    expect(stage.errors()).toMatchObject([{ cause: TRACE }])
  })
})
