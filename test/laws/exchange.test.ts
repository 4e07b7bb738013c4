import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { ResponseSource, SourceReceiver } from '../../src/core/completion.ts'
import { GatewayError } from '../../src/core/errors.ts'
import type { Provider } from '../../src/core/ports.ts'
import { createGateway } from '../../src/index.ts'
import { cases, fc } from '../support/properties.ts'
import { testModel } from '../support/provider-call.ts'
import { ScriptedClient } from '../support/scripted-client.ts'
import { buildEvents } from '../support/upstream-responses.ts'
import { formatEvent } from '../support/upstream.ts'
import { recordingStore } from '../support/recording-store.ts'
import { chatFormat } from '../support/two-way-formats.ts'

const BODY = { model: 'script/model', stream: true, messages: [{ role: 'user', content: 'Tell me.' }] }
const PIECES = buildEvents(
  { dialect: 'chat', body: BODY, index: 0, text: '' },
  { text: ['One', ' two', ' three', ' four', ' five', ' six'] },
).map((event) => new TextEncoder().encode(formatEvent(event)))

/** An upstream whose events the test sends. Like a transport, it emits nothing after its end. */
class ScriptedSource implements ResponseSource {
  readonly format = chatFormat
  isPaused = false
  isOver = false
  isRead = false
  #next = 0
  #receiver: SourceReceiver | undefined

  read(receiver: SourceReceiver): void {
    this.#receiver = receiver
    this.isRead = true
  }

  pause(): void {
    this.isPaused = true
  }

  resume(): void {
    this.isPaused = false
  }

  complete(): void {
    this.isOver = true
  }

  abort(): void {
    this.isOver = true
  }

  piece(): void {
    const bytes = PIECES[this.#next]
    if (this.isOver || this.isPaused || this.#receiver === undefined || bytes === undefined) return
    this.#next += 1
    this.#receiver.onBytes(bytes)
  }

  end(): void {
    if (this.isOver || this.isPaused || this.#receiver === undefined) return
    this.isOver = true
    this.#receiver.onEnd()
  }

  fail(error: unknown): void {
    if (this.isOver || this.#receiver === undefined) return
    this.isOver = true
    this.#receiver.onError(error)
  }
}

type Move = 'piece' | 'end' | 'cut' | 'timeout' | 'leave' | 'slow' | 'drain' | 'turn'

interface Played {
  readonly client: ScriptedClient
  readonly source: ScriptedSource
  readonly move: (move: Move) => Promise<void>
  /** Ends all calls, and resolves when all requests are settled. */
  readonly finish: () => Promise<void>
  readonly store: ReturnType<typeof recordingStore>
}

/** Starts a request at a gateway whose store needs `storeTurns` turns of the event loop per settlement. */
async function play(storeTurns: number): Promise<Played> {
  const store = recordingStore()
  const { settle, reserve } = store
  const wait = async (): Promise<void> => {
    for (let turn = 0; turn < storeTurns; turn += 1) await nextTurn()
  }
  const slow = Object.assign(store, {
    local: false,
    settle: async (given: Parameters<typeof settle>[0]) => {
      await wait()
      return settle(given)
    },
    reserve: async (given: Parameters<typeof reserve>[0]) => {
      await wait()
      return reserve(given)
    },
  })
  const source = new ScriptedSource()
  const provider: Provider = {
    name: 'script',
    dialect: 'chat',
    models: [testModel],
    model: () => testModel,
    complete: () => Promise.reject(new Error('only streams')),
    stream: async ({ onAccepted }) => {
      onAccepted?.()
      return { response: source, ignored: [] }
    },
  }
  const gateway = createGateway({ providers: [provider], store: slow, cache: false, runtime: { random: () => 0 } })
  const key = await gateway.keys.create({ name: 'law', budget_limit_cents: 100_000 })
  const client = new ScriptedClient()
  gateway.handle(client.request(key.value, { path: '/v1/chat/completions', body: BODY }), client)
  const move = async (one: Move): Promise<void> => {
    switch (one) {
      case 'piece':
        return source.piece()
      case 'end':
        return source.end()
      case 'cut':
        return source.fail(new GatewayError('upstream', 'The provider "script" did not complete its response.'))
      case 'timeout':
        return source.fail(new GatewayError('upstream-timeout', 'The provider "script" sent no more data.'))
      case 'leave':
        return client.leave()
      case 'slow':
        client.isSlow = true
        return
      case 'drain':
        return client.drain()
      case 'turn':
        await nextTurn()
    }
  }
  const finish = async (): Promise<void> => {
    const until = async (isReached: () => boolean): Promise<void> => {
      for (let turn = 0; turn < 10_000 && !isReached(); turn += 1) await nextTurn()
      expect(isReached()).toBe(true)
    }
    await until(() => source.isRead || client.status !== 0)
    client.leave()
    client.drain()
    await until(() => client.status !== 0)
    await store.waitUntilSettled()
    for (let turn = 0; turn <= 2 * storeTurns + 5; turn += 1) await nextTurn()
    await gateway.close()
  }
  return { client, source, move, finish, store }
}

describe('a streamed request', () => {
  const moves = fc.array(
    fc.oneof(
      { weight: 8, arbitrary: fc.constant<Move>('piece') },
      { weight: 4, arbitrary: fc.constant<Move>('turn') },
      { weight: 2, arbitrary: fc.constantFrom<Move>('slow', 'drain') },
      { weight: 1, arbitrary: fc.constantFrom<Move>('end', 'cut', 'timeout', 'leave') },
    ),
    { maxLength: 40 },
  )

  it('settles once and writes nothing after its end, in any order of events', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(3), fc.boolean(), moves, async (storeTurns, startsFirst, order) => {
        const { client, source, move, finish, store } = await play(storeTurns)
        while (startsFirst && !source.isRead && client.status === 0) await nextTurn()
        for (const one of order) await move(one)
        await finish()

        expect(client.faults).toEqual([])
        expect(client.endings).toBeLessThanOrEqual(1)
        if (!client.hasLeft) expect(client.endings).toBe(1)
        expect(store.settlements.map(({ reservationId }) => reservationId)).toEqual(store.reservationIds)
        expect(await store.maxHeld()).toBe(0)
        if (source.isRead) expect(source.isOver).toBe(true)
      }),
      { numRuns: cases(300) },
    )
  })

  it('pauses its upstream while its client is slow, without losing data', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom<Move>('slow', 'drain', 'turn'), { maxLength: 30 }), async (order) => {
        const { client, source, move, finish, store } = await play(0)
        while (!source.isRead && client.status === 0) await nextTurn()
        expect(client.text).toBe('')
        for (const one of order) {
          await move(one)
          await move('piece')
          if (client.isFull && !source.isOver) expect(source.isPaused).toBe(true)
        }
        while (client.endings === 0) {
          client.drain()
          source.piece()
          await nextTurn()
        }

        const said = [...client.text.matchAll(/"content":"([^"]*)"/g)].map((match) => match[1]).join('')
        expect(said).toBe('One two three four five six')
        expect(client.text).toContain('[DONE]')
        await finish()
        expect([client.faults, store.settlements.length]).toEqual([[], 1])
      }),
      { numRuns: cases(100) },
    )
  })
})
