import type { UsageGroup, UsageReportRow } from './usage-api.ts'

const COLUMNS: readonly (readonly [name: string, read: (row: UsageReportRow) => number])[] = [
  ['requests', ({ requests }) => requests],
  ['prompt_tokens', ({ tokens }) => tokens.prompt],
  ['completion_tokens', ({ tokens }) => tokens.completion],
  ['saved_tokens', ({ tokens }) => tokens.saved],
  ['theoretical_nano_usd', ({ cost }) => cost.theoreticalNanoUsd],
  ['theoretical_usd', ({ cost }) => cost.theoreticalUsd],
  ['actual_nano_usd', ({ cost }) => cost.actualNanoUsd],
  ['actual_usd', ({ cost }) => cost.actualUsd],
  ['billed_nano_usd', ({ cost }) => cost.billedNanoUsd],
  ['billed_usd', ({ cost }) => cost.billedUsd],
]

export function writeCsv(groupBy: readonly UsageGroup[], rows: readonly UsageReportRow[], hasHeader: boolean): string {
  const header = [...groupBy.map(quoted), ...COLUMNS.map(([name]) => name)]
  const lines = rows.map((row) => [
    ...groupBy.map((name) => quoted(row.group[name] ?? '')),
    ...COLUMNS.map(([, read]) => String(read(row))),
  ])
  return [...(hasHeader ? [header] : []), ...lines].map((cells) => `${cells.join(',')}\r\n`).join('')
}

/** Spreadsheets run a cell that begins like a formula, so such a value gets an apostrophe, which they do not show. */
function quoted(text: string): string {
  const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text
  return `"${safe.replaceAll('"', '""')}"`
}
