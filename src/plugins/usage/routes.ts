import type { GatewayError } from '../../core/errors.ts'
import { toWire } from '../../core/field-names.ts'
import type { Endpoint } from '../../http/router.ts'
import { parseDigits, invalidFieldError } from '../../governance/page-query.ts'
import { type AdminOptions, createGate } from '../../kernel/admin-access.ts'
import { inWireForm } from '../../kernel/admin-body.ts'
import { type Call, type Handler, pathId } from '../../kernel/call.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'
import { sendJson } from '../../kernel/response-headers.ts'
import type { Services } from '../../kernel/services.ts'
import { reportUsage, type ReportDependencies } from './report.ts'
import { summarizeUsage, type SummaryDependencies } from './summary.ts'
import type { UsageGroup, UsageQuery, UsageReport, UsageSummaryQuery } from './usage-api.ts'

export function usageEndpoints(
  dependencies: ReportDependencies & SummaryDependencies,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const { requireAdmin, respondWith } = createGate(admin, services)
  return [
    {
      method: 'GET',
      path: '/api/governance/usage',
      handle: requireAdmin(async (call) => sendReport(call, await reportUsage(readQuery(call), dependencies))),
    },
    {
      method: 'GET',
      path: '/api/governance/customers/:id/usage',
      handle: respondWith(inWireForm((call) => summarizeUsage(readSummaryQuery(call), dependencies))),
    },
  ]
}

function readSummaryQuery(call: Call): UsageSummaryQuery {
  const query: { customer: string; user?: string; session?: string } = { customer: pathId(call) }
  for (const [name, text] of call.query) {
    if (name !== 'user' && name !== 'session') throw unknownParameterError(name)
    query[name] = text
  }
  return query
}

function unknownParameterError(name: string): GatewayError {
  return invalidFieldError(name, 'there is no such parameter. See docs/usage.md.')
}

/** The header `x-next` of a page in CSV contains the cursor. */
function sendReport(call: Call, { csv, rows, ...report }: UsageReport): void {
  const headers = noStoreHeaders(call)
  if (csv !== undefined) {
    headers['content-type'] = 'text/csv; charset=utf-8'
    if (report.next !== null) headers['x-next'] = report.next
    call.sink.send(200, headers, csv)
    return
  }
  // Names of groups contain names of tags, which stay as they are.
  const wireRows = rows.map(({ group, ...amounts }) => ({ group, ...Object(toWire(amounts)) }))
  const { from, to, next } = report
  sendJson(call.sink, 200, headers, JSON.stringify({ from, to, rows: wireRows, totals: toWire(report.totals), next }))
}

const TEXTS = ['from', 'to', 'after', 'format'] as const
const FILTER = /^(?:customer|user|session|key|model|provider|tag:.*)$/s

function readQuery({ query, request }: Call): UsageQuery {
  const parts: Record<string, unknown> = {}
  const filter: Record<string, string> = {}
  for (const [name, text] of query) {
    if (name === 'group_by') parts['groupBy'] = text === '' ? [] : (text.split(',') as UsageGroup[])
    else if (name === 'limit') parts['limit'] = parseDigits(text)
    else if (TEXTS.some((known) => known === name)) parts[name] = text
    else if (FILTER.test(name)) filter[name] = text
    else throw unknownParameterError(name)
  }
  const isCsv = (request.header('accept') ?? '').includes('text/csv')
  return { ...(isCsv && { format: 'csv' }), ...parts, filter }
}
