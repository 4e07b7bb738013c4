import { isJsonObject, type JsonObject } from '../core/json.ts'

/** An answer as it can be given again, without what belongs to one response only (request id, rate limits). */
export interface KeptAnswer {
  readonly status: number
  /** Header names in lower case. */
  readonly head: Readonly<Record<string, string>>
  readonly body: string
}

/** The stored value of an Idempotency-Key. Different requests have different fingerprints. */
export type ClaimRecord =
  | { readonly state: 'running'; readonly fingerprint: string; readonly token: string }
  | { readonly state: 'done'; readonly fingerprint: string; readonly answer: KeptAnswer }

/** One line of JSON, and for an answer its body as it is. */
export function writeClaim(record: ClaimRecord): string {
  if (record.state === 'running') return JSON.stringify(record)
  const { status, head, body } = record.answer
  return `${JSON.stringify({ state: 'done', fingerprint: record.fingerprint, status, head })}\n${body}`
}

/** Undefined for a text that `writeClaim` did not write. */
export function readClaim(text: string): ClaimRecord | undefined {
  const end = text.indexOf('\n')
  const line = parse(end === -1 ? text : text.slice(0, end))
  if (line === undefined) return undefined
  const { state, fingerprint, token, status, head } = line
  if (typeof fingerprint !== 'string') return undefined
  if (state === 'running' && typeof token === 'string') return { state, fingerprint, token }
  if (state !== 'done' || end === -1 || typeof status !== 'number' || !isHead(head)) return undefined
  return { state, fingerprint, answer: { status, head, body: text.slice(end + 1) } }
}

function isHead(value: unknown): value is Record<string, string> {
  return isJsonObject(value) && Object.values(value).every((field) => typeof field === 'string')
}

function parse(line: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}
