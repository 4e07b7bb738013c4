import { randomUUID } from 'node:crypto'
import { createGateway } from '../../../src/index.ts'
import type { Store } from '../../../src/core/store.ts'
import { cachingOptions, gatewayOptions, MODEL, PATIENT, questionOf, type FleetJob, type FleetReport } from './jobs.ts'
import { openCache, openStore } from './open-store.ts'

/** A process of a fleet. Its first argument is the job; it sends reports to its parent. */
const job = JSON.parse(process.argv[2] ?? '') as FleetJob
const { store, close } = await openStore(job.place)
// A process must exit when its parent does.
if (job.type === 'settle') process.once('disconnect', () => process.exit(1))

async function report(message: FleetReport): Promise<void> {
  await new Promise<void>((resolve) => process.send?.(message, undefined, undefined, () => resolve()))
}

/** Sends requests through a gateway, `atOnce` at a time, and reports the number of responses by status. */
async function ask(count: number, atOnce: number, secret: string): Promise<void> {
  const gateway = createGateway({ ...gatewayOptions(store), ...PATIENT })
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

if (job.type === 'ask' || job.type === 'recall') {
  if (job.type === 'ask') await ask(job.count, job.atOnce, job.secret)
  else await recall(job)
  await close()
  process.disconnect()
} else {
  await Promise.all(Array.from({ length: job.atOnce }, () => settleUntilKilled(store, job)))
}
