import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { LogRecord, Plugin, PluginOutcome } from '../../../src/index.ts'
import { Cancellation } from '../../../src/core/async.ts'
import { callHook } from '../../../src/plugins/custom/plugin-calls.ts'
import { manualRuntime } from '../../support/manual-runtime.ts'
import { KINDS } from '../../support/plugin-requests.ts'
import { CHAT_MODEL, type Stage, startStage } from '../../support/stage.ts'
import { waitUntil } from '../../support/wait-until.ts'

type Hook = 'onRequest' | 'onLookup' | 'transformPrompt' | 'transformResponse'
/** JavaScript code can return anything. */
type Returns = () => unknown

const HOOKS: readonly Hook[] = ['onRequest', 'onLookup', 'transformPrompt', 'transformResponse']
const FAULTS: Readonly<Record<string, (hook: Hook) => Returns>> = {
  throws: () => () => {
    throw new Error('broken')
  },
  'returns garbage': () => () => 42,
  'returns an object with wrong fields': (hook) => () =>
    hook === 'transformResponse' ? { write: () => [{ type: 'text-delta', text: 5 }] } : { content: 5, messages: [5] },
  'never ends': (hook) => () => (hook === 'transformResponse' ? Promise.resolve({}) : new Promise(() => {})),
  floods: (hook) => () => {
    if (hook === 'transformPrompt')
      return { messages: Array.from({ length: 20_000 }, () => ({ role: 'user', parts: [] })) }
    if (hook !== 'transformResponse') return { content: Array.from({ length: 3 }, () => ({ type: 'image' })) }
    return { write: (part: unknown) => Array.from({ length: 20_000 }, () => part) }
  },
}

describe.each(['reject', 'skip'] as const)('with onFailure %s', (onFailure) => {
  let stage: Stage
  let faulty: { readonly hook: Hook; readonly returns: Returns } | undefined
  const outcomes: PluginOutcome[] = []
  const events: LogRecord[] = []

  const call = (hook: Hook): unknown => (faulty?.hook === hook ? faulty.returns() : undefined)
  const untyped: Record<Hook, () => unknown> = {
    onRequest: () => call('onRequest'),
    onLookup: () => call('onLookup'),
    transformPrompt: () => call('transformPrompt'),
    transformResponse: () => call('transformResponse'),
  }
  const plugin: Plugin = Object.assign(
    {
      name: 'faulty',
      onFailure,
      timeoutMs: 1,
      onEnd: (_: unknown, outcome: PluginOutcome) => void outcomes.push(outcome),
    },
    untyped,
  ) as Plugin

  beforeAll(async () => {
    stage = await startStage({
      plugins: [plugin],
      reply: () => 'The upstream answers.',
      log: (record) => void events.push(record),
    })
  })

  afterAll(() => stage.close())

  const cases = HOOKS.flatMap((hook) => Object.entries(FAULTS).map(([fault, create]) => ({ hook, fault, create })))

  it.each(cases)(
    'a request whose $hook $fault ends as onFailure says, and is settled once',
    async ({ hook, create }) => {
      faulty = { hook, returns: create(hook) }
      for (const kind of KINDS) {
        outcomes.length = 0
        const sent = stage.upstream.requests.length
        const { text, error } = await kind.ask(stage, CHAT_MODEL, 'Hello?')

        if (onFailure === 'skip')
          expect([kind.name, text, error]).toEqual([kind.name, 'The upstream answers.', undefined])
        else {
          expect([kind.name, error?.message]).toEqual([kind.name, expect.stringContaining('The plugin faulty failed')])
          expect(text).toBe('')
        }
        const isSent = onFailure === 'skip' || hook === 'transformResponse'
        expect(stage.upstream.requests.length - sent).toBe(isSent ? 1 : 0)
        await waitUntil(() => outcomes.length > 0)
        expect(outcomes).toHaveLength(1)
        if (isSent) expect(outcomes[0]?.bill?.billed).toBeGreaterThan(0)
        else expect(outcomes[0]?.bill).toBeUndefined()
      }
    },
  )

  it('no reservation remains after the faults, and the log has one record per minute', async () => {
    const key = await stage.gateway.keys.get(stage.keyId)
    const reports = events.filter((record) => 'event' in record && record.event === 'a plugin failed')

    expect(key.isActive).toBe(true)
    expect(reports.length).toBe(onFailure === 'skip' ? 1 : 0)
    expect(JSON.stringify(reports)).not.toContain(stage.secret)
  })
})

describe('a hook without an end', () => {
  it('is abandoned after its timeout, and its late result is ignored', async () => {
    const runtime = manualRuntime(() => ({ pause: () => {}, resume: () => {}, abort: () => {} }))
    const reported: unknown[] = []
    const log = { failure: (...report: unknown[]) => void reported.push(report) }
    let resolve: (value: string) => void = () => {}
    const plugin: Plugin = { name: 'slow', onFailure: 'skip', timeoutMs: 2_000 }
    const hook = {
      plugin,
      hook: 'onRequest' as const,
      call: () => new Promise<string>((later) => (resolve = later)),
      check: (value: string) => value,
    }
    const called = callHook(hook, { cancellation: new Cancellation() }, { runtime, log: log as never })

    runtime.advance(1_999)
    expect(reported).toEqual([])
    runtime.advance(1)

    expect(await called).toBeUndefined()
    resolve('late')
    expect(reported).toEqual([
      [
        'a plugin failed',
        new Error('onRequest did not return within 2000 ms.'),
        expect.objectContaining({ failures: 1 }),
      ],
    ])
    expect(runtime.pending()).toBe(0)
  })
})

describe('an observing hook that fails', () => {
  it.each(KINDS)('does not affect $name', async (kind) => {
    const broken = (): never => {
      throw new Error('broken')
    }
    const events: LogRecord[] = []
    const stage = await startStage({
      plugins: [
        { name: 'throws', onAttempt: broken, onEnd: broken },
        { name: 'rejects', onAttempt: () => broken, onEnd: () => Promise.reject(new Error('broken')) },
        { name: 'hangs', onEnd: () => new Promise(() => {}) },
      ],
      reply: () => 'The upstream answers.',
      log: (record) => void events.push(record),
    })

    expect(await kind.ask(stage, CHAT_MODEL, 'Hello?')).toMatchObject({
      text: 'The upstream answers.',
      error: undefined,
    })
    await kind.ask(stage, CHAT_MODEL, 'Hello?')

    await waitUntil(
      () => events.filter((record) => 'event' in record && record.event === 'a plugin failed').length === 2,
    )
    await stage.close()
  })
})
