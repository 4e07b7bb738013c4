import { setImmediate as nextTurn } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Transport, TransportHandler } from '../../src/core/ports.ts'
import { createGateway, type Gateway } from '../../src/index.ts'
import { httpProvider } from '../../src/providers/http-provider.ts'
import { CHAT_FORMAT, MESSAGES_FORMAT } from '../../src/providers/http-provider.ts'
import { cases, fc } from '../support/properties.ts'
import { testModel } from '../support/provider-call.ts'
import { ScriptedClient } from '../support/scripted-client.ts'
import { buildEvents, buildBody } from '../support/upstream-responses.ts'
import { formatEvent } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

const WORDS = ['One', ' two', ' three', ' four', ' five', ' six']
const encoder = new TextEncoder()

interface PlaySettings {
  readonly dialect: 'chat' | 'messages'
  readonly stream: boolean
  readonly lineEnd: '\n' | '\r\n'
  /** Text after the terminal event of the format. */
  readonly tail: string
  readonly isDetached: boolean
  /** Clients that send the same request with one Idempotency-Key. */
  readonly clients: 1 | 2
  /** Turns of the event loop that a store call takes. */
  readonly storeTurns: number
  /** Number of settlements that the store rejects first. */
  readonly refused: number
}

const QUICK = { lineEnd: '\n', tail: '', isDetached: false, clients: 1, storeTurns: 0, refused: 0 } as const

type Move =
  | { readonly kind: 'head'; readonly status: number }
  | { readonly kind: 'bytes'; readonly count: number }
  | { readonly kind: 'end' | 'cut' | 'turn' | 'close' }
  | { readonly kind: 'slow' | 'drain' | 'leave'; readonly client: number }

/** An upstream call that the test advances. As a transport requires, it emits nothing after its end or `abort`. */
class ScriptedCall {
  isPaused = false
  isOver = false
  hasHead = false
  sent = 0
  readonly #handler: TransportHandler
  readonly #bytes: Uint8Array
  readonly #type: string

  constructor(handler: TransportHandler, bytes: Uint8Array, type: string) {
    this.#handler = handler
    this.#bytes = bytes
    this.#type = type
  }

  head(status: number): void {
    if (this.isOver || this.hasHead) return
    this.hasHead = true
    this.#handler.onHead(status, (name) => (name === 'content-type' ? this.#type : undefined))
  }

  bytes(count: number): void {
    if (this.isOver || !this.hasHead || this.isPaused || this.sent >= this.#bytes.length) return
    const piece = this.#bytes.subarray(this.sent, this.sent + count)
    this.sent += piece.byteLength
    this.#handler.onData(piece)
  }

  end(): void {
    if (this.isOver || !this.hasHead || this.isPaused) return
    this.isOver = true
    this.#handler.onEnd()
  }

  cut(): void {
    if (this.isOver) return
    this.isOver = true
    this.#handler.onError(new Error('ECONNRESET'))
  }

  /** Sends the remaining bytes until the handler pauses. */
  finish(): void {
    this.head(200)
    while (!this.isOver && !this.isPaused && this.sent < this.#bytes.length) this.bytes(64)
    if (this.sent >= this.#bytes.length) this.end()
  }
}

function upstreamBytes({ dialect, stream, lineEnd, tail }: PlaySettings): Uint8Array {
  const asked = { index: 0, text: '', body: { model: 'model', stream }, dialect }
  if (!stream) return encoder.encode(JSON.stringify(buildBody(asked, { text: WORDS.join('') })))
  const events = buildEvents(asked, { text: WORDS }).map((event) => `: ping\n\n${formatEvent(event)}`)
  return encoder.encode((events.join('') + tail).replaceAll('\n', lineEnd))
}

/** A slow store that rejects the first settlements. */
function slowStore({ storeTurns, refused }: PlaySettings, onSettle: (reservationId: string) => void): RecordingStore {
  const store = recordingStore()
  let refusals = refused
  const slowly = async <value>(step: () => value | Promise<value>): Promise<value> => {
    for (let turn = 0; turn < storeTurns; turn += 1) await nextTurn()
    return step()
  }
  return {
    ...store,
    local: false,
    reserve: (request) => slowly(() => store.reserve(request)),
    settle: (settlement) =>
      slowly(() => {
        onSettle(settlement.reservationId)
        if (refusals === 0) return store.settle(settlement)
        refusals -= 1
        throw new Error('the store is away')
      }),
  }
}

class Play {
  readonly clients: readonly ScriptedClient[]
  readonly calls: ScriptedCall[] = []
  readonly store: RecordingStore
  readonly #setting: PlaySettings
  readonly #gateway: Gateway
  readonly #sentSettlements = new Set<string>()
  isClosed = false

  constructor(setting: PlaySettings) {
    this.#setting = setting
    this.store = slowStore(setting, (reservationId) => this.#sentSettlements.add(reservationId))
    this.clients = Array.from({ length: setting.clients }, () => new ScriptedClient())
    const bytes = upstreamBytes(setting)
    const transport: Transport = (_request, handler) => {
      const type = setting.stream ? 'text/event-stream' : 'application/json'
      const call = new ScriptedCall(handler, bytes, type)
      this.calls.push(call)
      return {
        pause: () => {
          call.isPaused = true
        },
        resume: () => {
          call.isPaused = false
        },
        abort: () => {
          call.isOver = true
        },
      }
    }
    const provider = httpProvider({
      name: 'script',
      format: setting.dialect === 'chat' ? CHAT_FORMAT : MESSAGES_FORMAT,
      models: [testModel],
      model: () => testModel,
      urls: { create: 'http://upstream.test/' },
      headers: {},
      transport,
    })
    this.#gateway = createGateway({ providers: [provider], store: this.store, runtime: { random: () => 0 } })
  }

  async begin(): Promise<void> {
    const key = await this.#gateway.keys.create({ name: 'law', budget_limit_cents: 100_000 })
    const { stream, isDetached, clients } = this.#setting
    const body = { model: 'script/model', stream, messages: [{ role: 'user', content: 'Tell me.' }] }
    const more: Record<string, string> = {}
    if (isDetached) more['x-svc-detach'] = 'true'
    if (clients > 1) more['idempotency-key'] = 'once'
    for (const client of this.clients) {
      this.#gateway.handle(client.request(key.value, { path: '/v1/chat/completions', body, more }), client)
    }
  }

  async move(move: Move): Promise<void> {
    const call = this.calls.at(-1)
    switch (move.kind) {
      case 'head':
        return call?.head(move.status)
      case 'bytes':
        return call?.bytes(move.count)
      case 'end':
      case 'cut':
        return call?.[move.kind]()
      case 'turn':
        return void (await nextTurn())
      case 'close':
        this.isClosed = true
        return void this.#gateway.close()
      case 'slow': {
        const client = this.clients[move.client]
        if (client !== undefined) client.isSlow = true
        return
      }
      default:
        this.clients[move.client]?.[move.kind]()
    }
  }

  /** True if a settlement of every reservation has reached the store, which may have rejected it. */
  hasSettled(): boolean {
    return this.store.reservationIds.every((id) => this.#sentSettlements.has(id))
  }

  /** Lets upstream and clients continue until all requests end and are settled. */
  async finish(): Promise<void> {
    const isOver = (): boolean => this.clients.every((client) => client.hasLeft || client.endings > 0)
    let quiet = 0
    for (let turn = 0; turn < 2_000_000 && quiet < 40; turn += 1) {
      for (const client of this.clients) client.drain()
      this.calls.at(-1)?.finish()
      await nextTurn()
      const isDone = isOver() && this.calls.every((call) => call.isOver) && this.hasSettled()
      quiet = isDone ? quiet + 1 : 0
    }
    expect(isOver()).toBe(true)
    await this.#gateway.close()
  }
}

const setting: fc.Arbitrary<PlaySettings> = fc.record({
  dialect: fc.constantFrom('chat', 'messages'),
  stream: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
  lineEnd: fc.constantFrom('\n', '\r\n'),
  tail: fc.constantFrom('', 'data: {"choices":[{"index":0,"delta":{"content":"late"}}]}\n\n', 'x'.repeat(9000)),
  isDetached: fc.boolean(),
  clients: fc.constantFrom(1, 2),
  storeTurns: fc.nat(3),
  refused: fc.nat(1),
})

const client = fc.nat(1)
const moves: fc.Arbitrary<readonly Move[]> = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant('head'), status: fc.constantFrom(200, 200, 200, 500, 400) }),
    },
    { weight: 12, arbitrary: fc.record({ kind: fc.constant('bytes'), count: fc.constantFrom(1, 7, 120, 900) }) },
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('turn') }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('slow', 'drain'), client }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('end', 'cut', 'close') }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('leave'), client }) },
  ) as fc.Arbitrary<Move>,
  { maxLength: 60 },
)

function receivedText({ text }: ScriptedClient, stream: boolean): string {
  const field = stream ? /"delta":\{[^}]*?"content":"([^"]*)"/g : /"content":"([^"]*)"/g
  return [...text.matchAll(field)].map((match) => match[1]).join('')
}

describe('a request whose upstream is a connection', () => {
  // The first request in a process loads code on demand, which takes longer than a play waits for a detached request.
  beforeAll(async () => {
    for (const dialect of ['chat', 'messages'] as const) {
      for (const stream of [true, false]) {
        const play = new Play({ ...QUICK, dialect, stream, isDetached: true, clients: 2 })
        await play.begin()
        await play.finish()
      }
    }
  })

  it('is settled without loading code if its caller disconnects before the upstream answers', async () => {
    const play = new Play({ ...QUICK, dialect: 'chat', stream: false })
    await play.begin()
    while (play.calls.length === 0) await nextTurn()
    await play.move({ kind: 'leave', client: 0 })
    await nextTurn()
    expect(play.hasSettled()).toBe(true)
    await play.finish()
  })

  it('is settled once and answered once, in any order of events', async () => {
    await fc.assert(
      fc.asyncProperty(setting, moves, async (given, order) => {
        const play = new Play(given)
        await play.begin()
        for (const one of order) await play.move(one)
        await play.finish()

        const { clients, store, calls } = play
        expect(clients.flatMap(({ faults }) => faults)).toEqual([])
        for (const one of clients) {
          const said = receivedText(one, given.stream)
          if (!one.hasLeft) expect(one.endings).toBe(1)
          if (one.status === 200) expect(WORDS.join('').startsWith(said)).toBe(true)
          if (one.text.includes('[DONE]')) expect(said).toBe(WORDS.join(''))
        }
        expect(calls.every((call) => call.isOver)).toBe(true)
        expect(store.settlements.map(({ reservationId }) => reservationId).toSorted()).toEqual(
          store.reservationIds.toSorted(),
        )
        expect(await store.maxHeld()).toBe(0)
      }),
      { numRuns: cases(300) },
    )
  })

  it('buffers little for a client that never reads', async () => {
    await fc.assert(
      fc.asyncProperty(setting, fc.integer({ min: 40, max: 400 }), async (given, size) => {
        const play = new Play({ ...given, stream: true, clients: 1, refused: 0 })
        await play.begin()
        const [reader] = play.clients
        if (reader !== undefined) reader.isSlow = true
        while (play.calls.length === 0) await nextTurn()
        const [call] = play.calls
        call?.head(200)
        for (let turn = 0; turn < 200; turn += 1) {
          call?.bytes(size)
          await nextTurn()
        }
        // The client accepted the first piece with text, and the upstream has been paused since.
        expect(reader?.status).toBe(200)
        expect(call?.isPaused).toBe(true)
        expect(receivedText(reader ?? new ScriptedClient(), true).length).toBeLessThan(WORDS.join('').length)
        reader?.leave()
        await play.finish()
      }),
      { numRuns: cases(40) },
    )
  })
})
