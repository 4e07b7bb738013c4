import { describe, expect, it } from 'vitest'
import type { ResponseSink } from '../../src/core/http.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { eventSinkOf } from '../../src/kernel/event-sink.ts'

type Method = keyof ResponseSink

function createSink(failing: readonly Method[]) {
  const calls: Method[] = []
  const call = (name: Method): void => {
    calls.push(name)
    if (failing.includes(name)) throw new Error(`The sink is broken: ${name}`)
  }
  const sink: ResponseSink = {
    send: () => call('send'),
    begin: () => call('begin'),
    write: () => (call('write'), false),
    onDrain: () => call('onDrain'),
    end: () => call('end'),
    destroy: () => call('destroy'),
  }
  const timers: (() => void)[] = []
  const failures: string[] = []
  let now = 1000
  const services = {
    limits: { heartbeatMs: 15_000 },
    timeouts: { totalMs: 60_000 },
    runtime: {
      now: () => now,
      after: (ms: number, callback: () => void) => {
        timers.push(() => {
          now += ms
          callback()
        })
        return () => {}
      },
    },
    log: { failure: (event: string) => void failures.push(event) },
  }
  const events = eventSinkOf({ sink, format: chatClient, id: 'req_1' }, services)
  return { events, calls, failures, fireTimer: () => timers.shift()?.() }
}

describe('an event sink whose connection throws', () => {
  it('is destroyed once, reports one failure, and drops what follows', () => {
    const { events, calls, failures } = createSink(['write', 'end', 'destroy'])
    expect(events.write('data: 1\n\n')).toBe(true)
    expect(events.write('data: 2\n\n')).toBe(true)
    events.fail(new GatewayError('upstream', 'failed'))
    events.end()
    expect(calls).toEqual(['write', 'destroy'])
    expect(failures).toEqual(['a stream could not be sent'])
  })

  it('does not throw in the timer of a heartbeat', () => {
    const { calls, fireTimer } = createSink(['write'])
    fireTimer()
    fireTimer()
    expect(calls).toEqual(['write', 'destroy'])
  })

  it('does not throw in the timer that disconnects a slow reader', () => {
    const { events, calls, fireTimer } = createSink(['destroy'])
    events.write('data: 1\n\n')
    for (let turn = 0; turn < 10; turn++) fireTimer()
    expect(calls.slice(0, 2)).toEqual(['write', 'destroy'])
  })

  it.each(['end', 'onDrain'] as const)('does not throw in %s', (name) => {
    const { events, calls } = createSink([name])
    if (name === 'end') events.end()
    else events.onDrain(() => {})
    expect(calls).toEqual([name, 'destroy'])
  })

  it('does not throw in the event of a failure', () => {
    const { events, calls } = createSink(['write'])
    events.fail(new GatewayError('upstream', 'failed'))
    expect(calls).toEqual(['write', 'destroy'])
  })
})
