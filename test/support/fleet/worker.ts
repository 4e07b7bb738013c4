import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { createGateway, type Plugin } from '../../../src/index.ts'
import { billingEvents, type SendBillingEvents } from '../../../src/billing.ts'
import type { Store } from '../../../src/core/store.ts'
import { cachingOptions, gatewayOptions, MODEL, PATIENT, questionOf, type FleetJob, type FleetReport } from './jobs.ts'
import { openCache, openStore } from './open-store.ts'
import { spend } from './spend.ts'

/** A process of a fleet. Its first argument is the job; it sends reports to its parent. */
const job = JSON.parse(process.argv[2] ?? '') as FleetJob
const { store, close } = await openStore(job.place)

type AskJob = FleetJob & { readonly type: 'ask' }

// A process must exit when its parent does.
if (job.type === 'settle' || job.type === 'warn') process.once('disconnect', () => process.exit(1))

async function report(message: FleetReport): Promise<void> {
  await new Promise<void>((resolve) => process.send?.(message, undefined, undefined, () => resolve()))
}

/** Sends requests through a gateway, `atOnce` at a time, and reports the number of responses by status. */
async function ask(
  { count = Infinity, atOnce, secret }: Partial<Pick<AskJob, 'count'>> & Pick<AskJob, 'atOnce' | 'secret'>,
  plugins: readonly Plugin[] = [],
): Promise<void> {
  const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT, plugins })
  const statuses: Record<string, number> = {}
  let left = count
  const work = async (): Promise<void> => {
    while ((left -= 1) >= 0) {
      const response = await gateway.fetch(
        new Request('http://gateway/v1/chat/completions', {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
        }),
      )
      await response.text()
      statuses[response.status] = (statuses[response.status] ?? 0) + 1
      // Running requests hold the rest of the budget. Without a pause, the others would all be refused at once.
      if (plugins.length > 0 && response.status === 402) await pause(20)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  await gateway.close()
  await report({ type: 'statuses', statuses })
}

/** Reserves and settles until it is killed, and reports each settlement that the store confirmed. */
async function settleUntilKilled(
  shared: Store,
  { counters, max, expiresAfterMs, expiresAt }: FleetJob & { readonly type: 'settle' },
): Promise<void> {
  for (;;) {
    const reservationId = randomUUID()
    const claims = counters.map((counter) => ({ counter, amount: 3, max, expiresAt }))
    const { accepted } = await shared.reserve({ reservationId, claims, expiresAfterMs })
    if (!accepted) continue
    const isSettled = await shared.settle({
      reservationId,
      charges: counters.map((counter) => ({ counter, amount: 1, expiresAt })),
      tallies: [{ name: 'usage:k:1d:0', amounts: { requests: 1 }, expiresAt }],
      entries: [{ log: 'audit', at: Date.now(), value: reservationId }],
    })
    if (isSettled) await report({ type: 'settled', reservationId })
  }
}

/** Reports the events of budgets while it sends requests, and after that until it is killed. */
async function warn(warnJob: FleetJob & { readonly type: 'warn' }): Promise<void> {
  const onBudget: Plugin['onBudget'] = ({ id, share }) => report({ type: 'warned', id, share })
  await ask(warnJob, [{ name: 'warn', onBudget }])
}

/** Reports the billing events that it delivers while it sends requests. */
async function bill(billJob: FleetJob & { readonly type: 'bill' }): Promise<void> {
  const send: SendBillingEvents = (events) => report({ type: 'billed', ids: events.map(({ id }) => id) })
  await ask(billJob, [billingEvents({ send, batch: { delayMs: 20 } })])
}

/** Sends a question through a gateway whose cache other processes share. */
async function recall(recallJob: FleetJob & { readonly type: 'recall' }): Promise<void> {
  const { place, upstream, secret, question, stream = false } = recallJob
  const opened = await openCache(place)
  const gateway = createGateway(cachingOptions(store, upstream, opened.cache))
  const response = await gateway.fetch(questionOf(secret, question, { stream }))
  const decoder = new TextDecoder()
  let body = ''
  let hasBegun = false
  for await (const bytes of response.body ?? []) {
    body += decoder.decode(bytes, { stream: true })
    if (hasBegun || !body.includes('"content":"Par"')) continue
    hasBegun = true
    await report({ type: 'began', body })
  }
  await gateway.close()
  await opened.close()
  await report({ type: 'recalled', status: response.status, cache: response.headers.get('x-svc-cache'), body })
}

if (job.type === 'ask' || job.type === 'recall' || job.type === 'spend' || job.type === 'bill') {
  if (job.type === 'ask') await ask(job)
  else if (job.type === 'bill') await bill(job)
  else if (job.type === 'recall') await recall(job)
  else await spend(store, job, report)
  await close()
  process.disconnect()
} else if (job.type === 'warn') {
  await warn(job)
} else {
  await Promise.all(Array.from({ length: job.atOnce }, () => settleUntilKilled(store, job)))
}
