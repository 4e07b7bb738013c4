import { describe, expect, it } from 'vitest'
import { createStderrLog } from '../../../src/core/failure-log.ts'
import { describeCause, errorCodeOf } from '../../../src/core/logged-cause.ts'
import { createGateway, GatewayError, memoryStore, openaiCompatible } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import type { GatewayOptions } from '../../../src/options.ts'
import type { LogRecord } from '../../../src/plugins/request-log/request-log.ts'
import { PRICE } from '../../support/stage.ts'
import { waitUntil } from '../../support/wait-until.ts'

const PROMPT = 'The launch date is a secret of the company.'

async function send(options: Partial<GatewayOptions>): Promise<Response> {
  const gateway = createGateway({ providers: [extractive()], ...options })
  const { value } = await gateway.keys.create({ name: 'app' })
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'extractive/extractive', messages: [{ role: 'user', content: PROMPT }] }),
  })
  await response.text()
  await gateway.close()
  return response
}

const failingMargin = (): number => {
  throw new TypeError(`The table has no row for\n"${PROMPT}" of Bearer sk-0123456789abcdef.`)
}

describe('an internal error of a gateway', () => {
  it('is one line on stderr if there is no log', async () => {
    const lines: string[] = []
    const response = await send({ margin: failingMargin, runtime: { stderr: (line) => lines.push(line) } })

    await waitUntil(() => lines.length > 0)
    expect(response.status).toBe(500)
    expect(lines).toHaveLength(1)
    const id = response.headers.get('x-request-id')
    expect(lines[0]).toContain(
      `sluice: a request failed because of an internal error [request_id=${id} route=POST /v1/chat/completions]`,
    )
    expect(lines[0]).toMatch(/TypeError: The table has no row for "\[removed\]" of \[removed\] at .*failure-log\.test/)
    expect(lines[0]).not.toMatch(/\n|secret of the company|sk-0123/)
  })

  it.each([
    'authorization: bearer hunter22',
    'postgres://app:hun/ter22@db.example/main',
    `connect to redis://app:hunter22${'x'.repeat(300)}@cache.example`,
    'password=hunter22',
    "the option 'hunter22 is the password' is unknown",
    'X-Api-Key: hunter22',
    'api_key = hunter22',
    'GET https://vendor.example/v1?key=hunter22&alt=sse',
    'invalid header value eyJhbGciOiJIUzI1NiJ9.hunter22AAAAAAAAAAAA.x',
    'the key 0123456789abcdefhunter2201234567 was rejected',
    'ghp_hunter220123456789',
    `${'word '.repeat(100)}\nat hunter22`,
  ])('does not print the secret in %j', async (message) => {
    const lines: string[] = []
    const margin = (): never => {
      throw new Error(`The lookup failed: ${message}`)
    }
    await send({ margin, runtime: { stderr: (line) => lines.push(line) } })

    await waitUntil(() => lines.length > 0)
    expect(lines[0]).toContain('Error: The lookup failed: ')
    expect(lines[0]).not.toMatch(/hunter22|ter22/)
  })

  it('keeps the words, numbers and paths of a message', async () => {
    const lines: string[] = []
    const message = "ENOENT: can't open /var/lib/node20/data.sqlite3, it isn't there (errno -2, 2026-11-28T10:00:00Z)"
    const margin = (): never => {
      throw new Error(message)
    }
    await send({ margin, runtime: { stderr: (line) => lines.push(line) } })

    await waitUntil(() => lines.length > 0)
    expect(lines[0]).toContain(message)
  })

  it('is a log record, and not on stderr, if there is a log', async () => {
    const lines: string[] = []
    const records: LogRecord[] = []
    const log = (record: LogRecord): unknown => records.push(record)
    await send({ margin: failingMargin, log, runtime: { stderr: (line) => lines.push(line) } })

    await waitUntil(() => records.some(({ event }) => event?.includes('internal error') === true))
    expect(lines).toEqual([])
    expect(records).toContainEqual(
      expect.objectContaining({
        level: 'ERROR',
        route: 'POST /v1/chat/completions',
        cause: expect.anything() as object,
      }),
    )
  })

  it('outside of a request is on stderr too', async () => {
    const lines: string[] = []
    const store = { ...memoryStore(), close: () => Promise.reject(new Error('The disk is full.')) }
    const gateway = createGateway({ providers: [extractive()], store, runtime: { stderr: (line) => lines.push(line) } })
    await expect(gateway.close()).rejects.toThrow()

    await waitUntil(() => lines.length > 0)
    expect(lines[0]).toContain('a shutdown step failed')
  })

  it('does not fail the request if stderr throws', async () => {
    const stderr = (): never => {
      throw new Error('EPIPE')
    }
    expect((await send({ margin: failingMargin, runtime: { stderr } })).status).toBe(500)
  })
})

describe('the record of a request whose provider could not be reached', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED 10.1.2.3:443'), { code: 'ECONNREFUSED' })

  it.each([
    ['ECONNREFUSED', new TypeError('fetch failed', { cause: refused })],
    ['ENOTFOUND', Object.assign(new Error('getaddrinfo ENOTFOUND vendor.internal'), { code: 'ENOTFOUND' })],
    ['ECONNREFUSED', new TypeError('fetch failed', { cause: new AggregateError([new Error('first'), refused]) })],
    ['UND_ERR_SOCKET', Object.assign(new Error('other side closed'), { code: 'UND_ERR_SOCKET' })],
  ])('contains the code %s without the host', async (code, error) => {
    const records: LogRecord[] = []
    const provider = openaiCompatible({
      name: 'extractive',
      baseUrl: 'http://vendor.internal/v1',
      models: [{ id: 'extractive', price: PRICE }],
      fetch: () => Promise.reject(error),
    })
    await send({ providers: [provider], log: (record) => records.push(record) })

    await waitUntil(() => records.some(({ event }) => event === undefined))
    expect(records).toContainEqual(expect.objectContaining({ failure: 'upstream', error_code: code }))
    expect(JSON.stringify(records)).not.toMatch(/vendor\.internal|10\.1\.2\.3/)
  })
})

describe('the code of an error', () => {
  it('is found in causes and in lists of errors, which may be cyclic', () => {
    const cyclic = new Error('cyclic')
    cyclic.cause = cyclic
    expect(errorCodeOf(cyclic)).toBeUndefined()
    expect(errorCodeOf(new AggregateError([cyclic, Object.assign(new Error(), { code: 'EPIPE' })]))).toBe('EPIPE')
    expect(errorCodeOf(Object.assign(new Error(), { code: 'a secret text' }))).toBeUndefined()
    expect(errorCodeOf(undefined)).toBeUndefined()
  })

  it('is part of the cause in an event', () => {
    const cause = new Error('failed', { cause: Object.assign(new Error(), { code: 'ETIMEDOUT' }) })
    expect(describeCause(new GatewayError('internal', 'text', { cause }))).toMatchObject({
      name: 'Error',
      message: 'failed',
      code: 'ETIMEDOUT',
    })
  })
})

describe('the lines on stderr', () => {
  const failureAt = (second: number) => ({
    timestamp: new Date(second * 1000).toISOString(),
    level: 'ERROR' as const,
    service: 'sluice',
    event: 'a batch item failed',
  })

  it('are at most ten per minute, and the next line contains the number of the others', () => {
    const lines: string[] = []
    const print = createStderrLog((line) => lines.push(line))
    for (let count = 0; count < 25; count += 1) print(failureAt(1000 + count))
    expect(lines).toHaveLength(10)

    print(failureAt(1060))
    expect(lines).toHaveLength(12)
    expect(lines[10]).toBe('sluice: 15 further errors were not printed. Set the option log to see all.')
    expect(lines[11]).toContain('a batch item failed')
  })

  it('continue after the clock was set back', () => {
    const lines: string[] = []
    const print = createStderrLog((line) => lines.push(line))
    for (let count = 0; count < 11; count += 1) print(failureAt(1000))
    print(failureAt(10))
    expect(lines).toHaveLength(12)
  })
})
