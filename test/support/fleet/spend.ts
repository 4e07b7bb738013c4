import { setImmediate as pause } from 'node:timers/promises'
import { billingEvents } from '../../../src/billing.ts'
import { createGateway, readBill, type GatewayOptions, type Plugin } from '../../../src/index.ts'
import type { CallerContext } from '../../../src/core/caller-context.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import type { Store } from '../../../src/core/store.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { PATIENT, type FleetJob, type FleetReport } from './jobs.ts'

export const CUSTOMERS = 50
const PARENTS = 5
/** Of each customer. */
const USERS = 2
const SESSIONS = 3
/** With the margin 1, in dollars: 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million. */
const DEAREST_USD = 0.00201

/** Uses up to 1,000 completion tokens, as the text says, and fails if the text says so. */
class UnevenProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(this.#failing(call))
    const wanted = Number(/\d+/.exec(textOf(call))?.[0] ?? 1)
    const tokens = Math.min(wanted, call.prompt.settings.maxTokens ?? Infinity)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: tokens } }, ignored }
  }

  override async stream(call: ProviderCall): ReturnType<EchoProvider['stream']> {
    return super.stream(this.#failing(call))
  }

  #failing(call: ProviderCall): ProviderCall {
    if (textOf(call).startsWith('Fail')) this.failures = 1
    return call
  }
}

function textOf({ prompt }: ProviderCall): string {
  const part = prompt.messages.at(-1)?.parts[0]
  return part?.type === 'text' ? part.text : ''
}

/** Options of every process. Each level limits some of the requests of `count`. */
export function spendOptions(store: Store, count: number): GatewayOptions {
  const each = (count / CUSTOMERS) * DEAREST_USD
  return {
    ...PATIENT,
    providers: [new UnevenProvider()],
    store,
    cache: false,
    streams: false,
    margin: 1,
    plans: {
      customer: {
        budgets: [
          { limitUsd: each / 3, window: '1M' },
          { limitUsd: each / 3.2, window: '1d', rolling: true },
        ],
        rateLimits: [{ requests: Math.ceil(count / CUSTOMERS / 1.2), window: '1M' }],
        perUser: [{ limitUsd: each / 5, window: '1M' }],
        perSession: { limitUsd: each / 12, requests: Math.ceil(count / CUSTOMERS / 4) },
      },
      parent: { budgets: [{ limitUsd: (each / 3.5) * (CUSTOMERS / PARENTS), window: '1M' }] },
    },
    governance: {
      customers: [
        ...Array.from({ length: PARENTS }, (_, index) => ({ id: `parent-${index}`, plan: 'parent' })),
        ...Array.from({ length: CUSTOMERS }, (_, index) => ({
          id: `customer-${index}`,
          plan: 'customer',
          parentId: `parent-${index % PARENTS}`,
        })),
      ],
    },
  }
}

/** Reports the amounts of billing events by id. */
export function reportEvents(report: (amounts: Readonly<Record<string, number>>) => void): Plugin {
  return billingEvents({
    batch: { delayMs: 0 },
    send: (events) => report(Object.fromEntries(events.map(({ id, billedNanoUsd }) => [id, billedNanoUsd]))),
  })
}

/** Records the maximum of each counter of the requests. */
function observing(store: Store, counters: Record<string, number>): Store {
  return {
    ...store,
    reserve: (request) => {
      for (const { counter, max } of request.claims) counters[counter] = max
      return store.reserve(request)
    },
  }
}

/** Sends requests of all customers, `atOnce` at a time. Some are aborted before or while they are answered, and some fail. */
export async function spend(
  store: Store,
  { count, atOnce, seed, total }: FleetJob & { readonly type: 'spend' },
  report: (message: FleetReport) => Promise<void>,
): Promise<void> {
  const counters: Record<string, number> = {}
  const statuses: Record<string, number> = {}
  const billed: Record<string, number> = {}
  const endedById = new Map<string, number>()
  const headers = { amount: 0, ended: 0 }
  const inHeaders = new Map<string, number>()
  const gateway = createGateway({
    ...spendOptions(observing(store, counters), total),
    plugins: [
      reportEvents((amounts) => void report({ type: 'delivered', amounts })),
      {
        name: 'bills',
        onEnd: ({ id, context: { customer, user, session } }, { bill }) => {
          if (bill === undefined) return
          const name = `${customer} ${user} ${session}`
          billed[name] = (billed[name] ?? 0) + bill.billed
          endedById.set(id, bill.billed)
        },
      },
    ],
  })
  const send = async (index: number): Promise<void> => {
    const fetch = gateway.with(contextOf(index)).fetch
    const isStream = index % 3 === 0
    const isAborted = index % 7 === 0
    const controller = new AbortController()
    const words = `${index % 11 === 0 ? 'Fail' : 'Say'} ${1 + ((index * 7919) % 1000)} words.`
    const responding = fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'contract/echo',
        max_tokens: 1000,
        stream: isStream,
        messages: [{ role: 'user', content: words }],
      }),
      signal: controller.signal,
    })
    if (isAborted && !isStream) {
      if (index % 2 === 0) await pause()
      controller.abort()
    }
    const response = await responding
    if (isAborted && isStream) {
      await response.body?.getReader().read()
      controller.abort()
    } else await response.text()
    statuses[response.status] = (statuses[response.status] ?? 0) + 1
    const bill = readBill(response)
    if (bill !== undefined && !bill.isEstimated && !isStream)
      inHeaders.set(response.headers.get('x-request-id') ?? '', Math.round(bill.billedUsd * 1e9))
  }
  let next = 0
  const work = async (): Promise<void> => {
    while (next < count) await send(seed * count + next++)
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  await gateway.close()
  for (const [id, amount] of inHeaders) {
    headers.amount += amount
    headers.ended += endedById.get(id) ?? 0
  }
  await report({ type: 'spent', statuses, billed, headers, counters })
}

function contextOf(index: number): CallerContext {
  const turn = Math.floor(index / CUSTOMERS)
  return {
    customer: `customer-${index % CUSTOMERS}`,
    user: `user-${turn % USERS}`,
    session: `session-${turn % SESSIONS}`,
    tags: { kind: index % 2 === 0 ? 'even' : 'odd' },
  }
}
