import { describe, expect, it } from 'vitest'
import { createRequestLog, type LogRecord } from '../../../src/plugins/request-log/request-log.ts'
import { finished, START, unanswered } from '../../support/finished.ts'

describe('the request log', () => {
  it('writes the specified record of a request to the sink', () => {
    const records: LogRecord[] = []
    createRequestLog((record) => records.push(record)).write(finished())
    expect(records).toEqual([
      {
        timestamp: '2026-01-15T12:00:00.000Z',
        level: 'INFO',
        service: 'sluice',
        request_id: 'request',
        virtual_key_id: 'key-1',
        model: 'openai/gpt-x',
        original_tokens: 100,
        optimized_tokens: 40,
        strategy: 'Passthrough (no optimization needed)',
        cost_cents: 3,
        theoretical_usd: expect.any(Number),
        actual_usd: expect.any(Number),
        billed_usd: expect.any(Number),
        tiers: [],
        latency_ms: 13,
        status: 200,
        outcome: 'answered',
        failure: null,
      },
    ])
  })

  it('names the customer, user and session of a request', () => {
    const records: LogRecord[] = []
    const context = { customer: 'acme', user: 'alice', session: 's1', tags: { feature: 'chat' } }
    const log = createRequestLog((record) => records.push(record))
    log.write(finished({ context }))
    log.write(finished({ context: {} }))
    expect(records[0]).toMatchObject({ customer: 'acme', user: 'alice', session: 's1' })
    expect(Object.keys(records[1] ?? {})).not.toContain('customer')
  })

  it.each([
    [200, undefined, 'INFO'],
    [429, 'rate-limited', 'WARN'],
    [502, 'upstream', 'ERROR'],
    [499, 'cancelled', 'INFO'],
  ] as const)('writes a request that ended with %i %s at level %s', (status, failure, level) => {
    const records: LogRecord[] = []
    const ended = failure === undefined ? finished({ status }) : unanswered({ status, failure })
    createRequestLog((record) => records.push(record)).write(ended)
    expect(records[0]?.['level']).toBe(level)
  })

  it('counts records for which the sink throws or rejects', async () => {
    let calls = 0
    const log = createRequestLog(() => {
      calls += 1
      if (calls === 1) throw new Error('full')
      return Promise.reject(new Error('later'))
    })
    log.write(finished())
    log.write(finished())
    await new Promise((resolve) => setImmediate(resolve))
    expect(log.dropped()).toBe(2)
  })

  it('limits the number of records in progress in a sink that never resolves', () => {
    let given = 0
    const log = createRequestLog(() => {
      given += 1
      return new Promise(() => {})
    })
    for (let n = 0; n < 1_500; n += 1) log.write(finished())
    expect(given).toBe(1_000)
    expect(log.dropped()).toBe(500)
  })

  it('writes all records to a sink that resolves', async () => {
    let given = 0
    const log = createRequestLog(async () => {
      given += 1
    })
    for (let n = 0; n < 1_500; n += 1) {
      log.write(finished())
      await Promise.resolve()
      await Promise.resolve()
    }
    expect([given, log.dropped()]).toEqual([1_500, 0])
  })

  it('accepts records without a sink', () => {
    const log = createRequestLog(undefined)
    log.write(finished())
    log.event('ERROR', 'lost', START)
    expect(log.dropped()).toBe(0)
  })

  it('writes the fields of an event, which cannot replace its time, level or service', () => {
    const records: LogRecord[] = []
    const log = createRequestLog((record) => records.push(record))
    const fields = { level: 'DEBUG', reservation_id: 'k' }
    log.event('ERROR', 'unsettled', START, fields)
    expect(records).toEqual([
      {
        timestamp: '2026-01-15T12:00:00.000Z',
        level: 'ERROR',
        service: 'sluice',
        event: 'unsettled',
        reservation_id: 'k',
      },
    ])
  })
})
