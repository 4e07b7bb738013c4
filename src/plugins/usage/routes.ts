import { toWire } from '../../core/field-names.ts'
import type { Endpoint } from '../../http/router.ts'
import { parseDigits, invalidFieldError } from '../../governance/page-query.ts'
import { type AdminOptions, createGate } from '../../kernel/admin-access.ts'
import type { Call, Handler } from '../../kernel/call.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'
import { sendJson } from '../../kernel/response-headers.ts'
import type { Services } from '../../kernel/services.ts'
import { reportUsage, type ReportDependencies } from './report.ts'
import type { UsageGroup, UsageQuery, UsageReport } from './usage-api.ts'

export function usageEndpoints(
  dependencies: ReportDependencies,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const { requireAdmin } = createGate(admin, services)
  const handle = requireAdmin(async (call) => sendReport(call, await reportUsage(readQuery(call), dependencies)))
  return [{ method: 'GET', path: '/api/governance/usage', handle }]
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
    else throw invalidFieldError(name, 'there is no such parameter. See docs/usage.md.')
  }
  const isCsv = (request.header('accept') ?? '').includes('text/csv')
  return { ...(isCsv && { format: 'csv' }), ...parts, filter }
}
