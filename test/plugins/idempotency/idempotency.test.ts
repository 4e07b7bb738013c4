import { describe, expect, it } from 'vitest'
import type { Store } from '../../../src/core/store.ts'
import { memoryStore } from '../../../src/index.ts'
import { EventBuffer } from '../../../src/streams/event-buffer.ts'
import { type RequestClaim, type FirstRequest, Idempotency } from '../../../src/plugins/idempotency/idempotency.ts'
import { Subscribers } from '../../../src/streams/shared-work.ts'
import { manualRuntime, type ManualRuntime } from '../../support/manual-runtime.ts'
import { noNetwork } from '../../support/no-network.ts'
import { cases, fc } from '../../support/properties.ts'

const RESPONSE = {
  status: 200,
  head: { 'x-svc-cache': 'MISS', 'content-type': 'application/json' },
  body: '{"text":"line\\nline"}\n',
}
const HOUR = 3_600_000

interface Processes {
  readonly runtime: ManualRuntime
  readonly store: Store
  /** Another process on the same store. */
  readonly process: () => Idempotency
}

function createProcesses(): Processes {
  const runtime = manualRuntime(noNetwork)
  const store = memoryStore({ now: runtime.now })
  return { runtime, store, process: () => new Idempotency({ ...runtime, store }) }
}

interface Asking {
  readonly claim: Promise<RequestClaim>
  readonly subscribers: Subscribers
  readonly leave: () => void
}

function ask(
  idempotency: Idempotency,
  fingerprint = 'body',
  more: { owner?: string; timeoutMs?: number } = {},
): Asking {
  const controller = new AbortController()
  const subscribers = new Subscribers(() => controller.abort(new Error('left')))
  const leave = subscribers.join()
  const claim = idempotency.claim({
    owner: more.owner ?? 'owner',
    idempotencyKey: 'key',
    fingerprint,
    subscribers,
    signal: controller.signal,
    timeoutMs: more.timeoutMs ?? HOUR,
  })
  claim.catch(() => {})
  return { claim, subscribers, leave }
}

async function firstOf(asking: Asking): Promise<FirstRequest> {
  const claim = await asking.claim
  if (claim.role !== 'first') throw new Error('somebody else was first')
  return claim.first
}

async function responseOf(asking: Asking): Promise<unknown> {
  const claim = await asking.claim
  return claim.role === 'repetition' && claim.replayed.kind === 'complete' ? claim.replayed.response : claim.role
}

/** Resolves after all pending work that needs no timer. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Advances the clock by one poll. */
async function poll({ runtime }: Processes): Promise<void> {
  await settled()
  runtime.advance(250)
  await settled()
}

describe('an idempotency key in one process', () => {
  it('sends the answer of the first request to waiting and later requests', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one, two, three] = [ask(idempotency), ask(idempotency), ask(idempotency)]
    await (await firstOf(one)).remember(RESPONSE)

    expect(await responseOf(two)).toEqual(RESPONSE)
    expect(await responseOf(three)).toEqual(RESPONSE)
    expect(await responseOf(ask(idempotency))).toEqual(RESPONSE)
    expect(idempotency.size).toBe(0)
  })

  it('keeps the first request running while another request waits for it', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one, two] = [ask(idempotency), ask(idempotency)]
    const first = await firstOf(one)
    await settled()
    one.leave()
    expect(one.subscribers.isOver).toBe(false)
    await first.remember(RESPONSE)
    expect(await responseOf(two)).toEqual(RESPONSE)
  })

  it('ends the first request when the last waiting request leaves', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one, two] = [ask(idempotency), ask(idempotency)]
    await firstOf(one)
    await settled()
    one.leave()
    two.leave()
    await expect(two.claim).rejects.toThrow('left')
    await settled()
    expect(one.subscribers.isOver).toBe(true)
  })

  it('runs waiting and later requests after a first request whose stream cannot be followed', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one, two] = [ask(idempotency), ask(idempotency)]
    const first = await firstOf(one)
    const buffer = new EventBuffer(undefined)
    first.share({}, buffer)
    const three = ask(idempotency)
    await settled()
    expect(idempotency.size).toBe(1)
    buffer.finish('data: {}\n\n', true)

    await (await firstOf(two)).remember(RESPONSE)
    expect(await responseOf(three)).toEqual(RESPONSE)
  })

  it('ends a first request that cannot be followed when its caller leaves', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one] = [ask(idempotency), ask(idempotency)]
    const first = await firstOf(one)
    first.share({}, new EventBuffer(undefined))
    await settled()
    one.leave()
    expect(one.subscribers.isOver).toBe(true)
  })

  it('runs the next request after an abandoned first request has ended', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const one = ask(idempotency)
    const first = await firstOf(one)
    one.leave()
    const two = ask(idempotency)
    await settled()
    expect(idempotency.size).toBe(1)
    await first.release()

    expect(await responseOf(two)).toBe('first')
  })

  it('sends a refusal to waiting requests, and not to later requests', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const [one, two] = [ask(idempotency), ask(idempotency)]
    await (await firstOf(one)).release({ ...RESPONSE, status: 503 })

    expect(await responseOf(two)).toEqual({ ...RESPONSE, status: 503 })
    expect(await responseOf(ask(idempotency))).toBe('first')
  })

  it('rejects a different request during and after the first, but not before the first is known', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const first = await firstOf(ask(idempotency))
    await expect(ask(idempotency, 'other').claim).rejects.toMatchObject({ kind: 'conflict' })
    await first.remember(RESPONSE)
    await idempotency.flush()

    const [wrong, right] = [ask(idempotency, 'other'), ask(idempotency)]
    await expect(wrong.claim).rejects.toMatchObject({ kind: 'conflict' })
    expect(await responseOf(right)).toEqual(RESPONSE)
  })

  it('accepts the first outcome only', async () => {
    const { process } = createProcesses()
    const idempotency = process()
    const first = await firstOf(ask(idempotency))
    await first.remember(RESPONSE)
    await first.release()
    await first.remember({ ...RESPONSE, status: 500 })
    expect(await responseOf(ask(idempotency))).toEqual(RESPONSE)
  })

  it('expires after 24 hours, and belongs to its owner', async () => {
    const here = createProcesses()
    const idempotency = here.process()
    await (await firstOf(ask(idempotency))).remember(RESPONSE)
    expect(await responseOf(ask(idempotency, 'body', { owner: 'other' }))).toBe('first')
    here.runtime.advance(24 * HOUR - 1)
    expect(await responseOf(ask(idempotency))).toEqual(RESPONSE)
    here.runtime.advance(1)
    expect(await responseOf(ask(idempotency))).toBe('first')
  })

  it('rejects a request that waits too long with a conflict', async () => {
    const here = createProcesses()
    const idempotency = here.process()
    await firstOf(ask(idempotency))
    const two = ask(idempotency, 'body', { timeoutMs: 1000 })
    await settled()
    here.runtime.advance(1000)
    await expect(two.claim).rejects.toMatchObject({ kind: 'conflict', details: { retryAfterSeconds: 1 } })
  })

  it('rejects when the store fails, and waiting requests try again', async () => {
    const here = createProcesses()
    let failures = 1
    const get: Store['get'] = (name) => (failures-- > 0 ? Promise.reject(new Error('away')) : here.store.get(name))
    const idempotency = new Idempotency({ ...here.runtime, store: { ...here.store, get } })
    const [one, two] = [ask(idempotency), ask(idempotency)]
    await expect(one.claim).rejects.toThrow('away')
    expect(await responseOf(two)).toBe('first')
  })
})

describe('a store whose reads lag behind its writes', () => {
  interface Lagging {
    readonly here: Processes
    readonly idempotency: Idempotency
    readonly reads: () => number
    readonly catchUp: () => void
  }

  /** Creates a store that holds another process's answer but does not return it from reads yet. */
  async function createLaggingStore(): Promise<Lagging> {
    const here = createProcesses()
    await (await firstOf(ask(here.process()))).remember(RESPONSE)
    let reads = 0
    let lags = true
    const get: Store['get'] = (name) => {
      reads += 1
      return lags ? Promise.resolve(undefined) : here.store.get(name)
    }
    const idempotency = new Idempotency({ ...here.runtime, store: { ...here.store, get } })
    const catchUp = (): void => {
      lags = false
    }
    return { here, idempotency, reads: () => reads, catchUp }
  }

  async function pass({ here }: Lagging, seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      await settled()
      here.runtime.advance(1000)
      await settled()
    }
  }

  it('is polled with increasing pauses until it returns the answer', async () => {
    const lag = await createLaggingStore()
    const asking = ask(lag.idempotency)
    await settled()
    expect(lag.reads()).toBeLessThanOrEqual(2)
    await pass(lag, 60)
    expect(lag.reads()).toBeLessThanOrEqual(20)
    lag.catchUp()
    await pass(lag, 5)
    expect(await responseOf(asking)).toEqual(RESPONSE)
  })

  it('is not polled after the caller has left', async () => {
    const lag = await createLaggingStore()
    const asking = ask(lag.idempotency)
    await settled()
    asking.leave()
    await expect(asking.claim).rejects.toThrow('left')
    const before = lag.reads()
    await pass(lag, 60)
    expect(lag.reads()).toBe(before)
  })

  it('is not polled after the deadline of the request', async () => {
    const lag = await createLaggingStore()
    const asking = ask(lag.idempotency, 'body', { timeoutMs: 30_000 })
    await pass(lag, 31)
    await expect(asking.claim).rejects.toMatchObject({ kind: 'conflict', details: { retryAfterSeconds: 1 } })
    const before = lag.reads()
    await pass(lag, 60)
    expect(lag.reads()).toBe(before)
  })
})

describe('an idempotency key in several processes', () => {
  it('sends the answer of the first request in another process', async () => {
    const here = createProcesses()
    const first = await firstOf(ask(here.process()))
    const elsewhere = ask(here.process())
    await poll(here)
    await first.remember(RESPONSE)
    await poll(here)
    expect(await responseOf(elsewhere)).toEqual(RESPONSE)
  })

  it('is leased while the first request runs', async () => {
    const here = createProcesses()
    const first = await firstOf(ask(here.process()))
    const elsewhere = ask(here.process())
    for (let minute = 0; minute < 30; minute += 1) {
      for (let step = 0; step < 6; step += 1) {
        here.runtime.advance(10_000)
        await settled()
      }
    }
    await first.remember(RESPONSE)
    await poll(here)
    expect(await responseOf(elsewhere)).toEqual(RESPONSE)
  })

  it('remains leased when one renewal fails', async () => {
    const here = createProcesses()
    let failures = 0
    const swap: Store['swap'] = (...given) => {
      if (failures === 0) return here.store.swap(...given)
      failures -= 1
      return Promise.reject(new Error('away'))
    }
    const idempotency = new Idempotency({ ...here.runtime, store: { ...here.store, swap } })
    const first = await firstOf(ask(idempotency))
    const elsewhere = ask(here.process())
    failures = 1
    for (let step = 0; step < 6; step += 1) {
      here.runtime.advance(10_000)
      await settled()
    }
    expect(failures).toBe(0)
    await first.remember(RESPONSE)
    await poll(here)
    expect(await responseOf(elsewhere)).toEqual(RESPONSE)
  })

  it('passes to another process when the first process has died', async () => {
    const here = createProcesses()
    const dying = new Idempotency({ ...here.runtime, after: () => () => {}, store: here.store })
    const late = await firstOf(ask(dying))
    const elsewhere = ask(here.process())
    await poll(here)
    here.runtime.advance(30_000)
    await poll(here)
    const first = await firstOf(elsewhere)
    await late.remember({ ...RESPONSE, body: 'from the dead' })
    await first.remember(RESPONSE)

    expect(await responseOf(ask(here.process()))).toEqual(RESPONSE)
  })

  it('passes to another process when the first request has failed', async () => {
    const here = createProcesses()
    const first = await firstOf(ask(here.process()))
    const elsewhere = ask(here.process())
    await poll(here)
    await first.release({ ...RESPONSE, status: 503 })
    await poll(here)
    expect(await responseOf(elsewhere)).toBe('first')
  })

  it('is claimed by one process at a time in any schedule', async () => {
    const move = fc.constantFrom('ask', 'ask', 'remember', 'forget', 'leave', 'wait')
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(move, fc.nat(2)), { maxLength: 30 }), async (moves) => {
        const here = createProcesses()
        const processes = [here.process(), here.process(), here.process()]
        const running: FirstRequest[] = []
        const asked: Asking[] = []
        const replays: unknown[] = []
        let remembered = 0
        for (const [kind, index] of moves) {
          if (kind === 'ask') {
            const asking = ask(processes[index]!)
            asked.push(asking)
            void asking.claim.then(
              (claim) => (claim.role === 'first' ? running.push(claim.first) : replays.push(claim.replayed)),
              () => {},
            )
          }
          if (kind === 'leave') asked[index]?.leave()
          if (kind === 'wait') await poll(here)
          await settled()
          expect(running.length).toBeLessThanOrEqual(1)
          if (kind === 'remember' && running.length === 1) {
            await running.pop()?.remember(RESPONSE)
            remembered += 1
          }
          if (kind === 'forget') await running.pop()?.release()
        }
        expect(remembered).toBeLessThanOrEqual(1)
        for (const replayed of replays) expect(replayed).toEqual({ kind: 'complete', response: RESPONSE })
      }),
      { numRuns: cases(200) },
    )
  })
})
