import {
  createGateway,
  readBill,
  type AuditRecord,
  type KeyUsage,
  type LogRecord,
  type MetricsSummary,
  type ResponseBill,
} from 'sluice'
import { extractive } from 'sluice/testing'

/** The values that a typical program reads. A cast needed here would be needed in every program. */
export interface Report {
  readonly secret: string
  readonly listed: readonly string[]
  readonly bill: ResponseBill | undefined
  readonly usage: KeyUsage
  readonly logged: readonly string[]
  readonly audit: readonly AuditRecord[]
  readonly metrics: MetricsSummary
  readonly sums: readonly number[]
}

function lineOf(record: LogRecord): string {
  if (record.event !== undefined) return `${record.level} ${record.event} ${record.cause?.message ?? ''}`
  return `${record.request_id} ${record.model ?? ''} ${record.billed_usd.toFixed(6)} ${record.tiers.length}`
}

/** Creates a key, sends a request, and reads its bill, the usage, the log, the audit trail and the metrics. */
export async function runTypicalProgram(): Promise<Report> {
  const logged: string[] = []
  const gateway = createGateway({ providers: [extractive()], log: (record) => logged.push(lineOf(record)) })
  const team = await gateway.budgets.create({ id: 'team', maxLimitUsd: 50, resetDuration: '1M' })
  const fair = await gateway.rateLimits.create({ id: 'fair', requestMaxLimit: 100, requestResetDuration: '1m' })
  const key = await gateway.keys.create({
    name: 'first app',
    budgetLimitCents: 1000,
    budgetId: team.id,
    rateLimitId: fair.id,
    providerConfigs: [{ provider: 'extractive', weight: 2, allowedModels: ['extractive'] }],
  })
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'extractive/extractive',
      messages: [{ role: 'user', content: 'A sluice is a gate for water. What is a sluice?' }],
    }),
  })
  await response.text()
  const bill = readBill(response)
  const usage = await gateway.keys.usage(key.id)
  const limits = await gateway.keys.limits(key.id)
  const { requestRemaining } = await gateway.keys.rateLimit(key.id)
  const changed = await gateway.keys.update(key.id, { isActive: false, budgetResetDuration: '1d' })
  const { keys, hasMore } = await gateway.keys.list({ limit: 10 })
  const { records } = await gateway.audit.read({ keyId: key.id })
  const metrics = gateway.metrics.summary()
  const { hitRate } = gateway.metrics.cache()
  const sums: readonly number[] = [
    changed.currentUsageCents,
    usage.cost.billedUsd,
    usage.byModel[0]?.tokens.prompt ?? 0,
    limits.remainingBudgetCents,
    requestRemaining,
    metrics.optimizer.requestsTotal,
    hitRate,
    hasMore ? 1 : 0,
  ]
  await gateway.close()
  return { secret: key.value, listed: keys.map(({ name }) => name), bill, usage, logged, audit: records, metrics, sums }
}

/** Uses the field names of the HTTP API, which the configuration and in-process calls accept. */
export async function useWireNames(): Promise<number> {
  const gateway = createGateway({
    providers: [extractive()],
    governance: {
      virtual_keys: [{ name: 'configured', value: 'a-secret-of-the-configuration', budget_limit_cents: 5 }],
      budgets: [{ id: 'team', max_limit: 50 }],
    },
  })
  const { id } = await gateway.keys.create({ name: 'wire', budget_limit_cents: 700, budget_reset_duration: '1d' })
  const { budgetLimitCents } = await gateway.keys.get(id)
  // @ts-expect-error There is no such field.
  await gateway.keys.update(id, { budgetLimit: 5 }).catch(() => {})
  // @ts-expect-error A limit is a number of cents.
  await gateway.keys.update(id, { budgetLimitCents: '5' }).catch(() => {})
  await gateway.close()
  return budgetLimitCents
}
