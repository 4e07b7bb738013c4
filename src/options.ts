import { z } from 'zod'
import { GatewayError } from './core/errors.ts'
import type { JsonObject } from './core/json.ts'
import type { Provider, Store, Timeouts } from './core/ports.ts'

/** Who asks for what, for a margin that depends on it. */
export interface MarginCall {
  readonly keyId: string
  readonly keyName: string
  /** The model's name as the caller wrote it. */
  readonly model: string
}

/** Greatest sizes. */
export interface Limits {
  /** The body of a request, in bytes. @default 33_554_432 (32 MiB) */
  readonly bodyBytes: number
  /** How long a caller may take to send a body, in milliseconds. @default 15_000 */
  readonly bodyReadMs: number
  /** Nesting of a JSON body. @default 64 */
  readonly jsonDepth: number
  /** Keys of all objects of a JSON body together. @default 50_000 */
  readonly jsonKeys: number
  /** The greatest `temperature` of the chat format. @default 1 */
  readonly maxTemperature: number
  /** Silence on a stream after which a sign of life is sent, in milliseconds. @default 15_000 */
  readonly heartbeatMs: number
}

export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 32 * 1024 * 1024,
  bodyReadMs: 15_000,
  jsonDepth: 64,
  jsonKeys: 50_000,
  maxTemperature: 1,
  heartbeatMs: 15_000,
}

export const DEFAULT_TIMEOUTS: Timeouts = { connect: 10_000, firstByte: 120_000, idle: 60_000, total: 600_000 }

/** The world outside, for tests and unusual platforms. */
export interface RuntimeOptions {
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number
  /** From 0 up to 1. @default Math.random */
  readonly random?: () => number
  /** A version 4 UUID. @default crypto.randomUUID */
  readonly uuid?: () => string
  /**
   * How upstreams are reached, called as `fetch(url, init)`.
   * @default undici on Node, the global fetch elsewhere
   */
  readonly fetch?: typeof globalThis.fetch
}

export const functionOf = <signature extends (...given: never[]) => unknown>(
  expectation: string,
): z.ZodCustom<signature, signature> =>
  z.custom<signature>((value) => typeof value === 'function', { error: `expected ${expectation}` })

const whole = z.number().int().min(1)

export const limitsSchema: z.ZodType<Partial<Limits>> = z
  .strictObject({
    bodyBytes: whole,
    bodyReadMs: whole,
    jsonDepth: whole.max(1000),
    jsonKeys: whole,
    maxTemperature: z.number().min(0).max(2),
    heartbeatMs: whole,
  })
  .partial() as z.ZodType<Partial<Limits>>

export const timeoutsSchema: z.ZodType<Partial<Timeouts>> = z
  .strictObject({ connect: whole, firstByte: whole, idle: whole, total: whole })
  .partial() as z.ZodType<Partial<Timeouts>>

/** Names the first wrong option by its path and says what was expected. */
export function parseOptions<options>(schema: z.ZodType<options>, given: unknown, subject: string): options {
  const result = schema.safeParse(given)
  if (result.success) return result.data
  const [issue] = result.error.issues
  const path = issue === undefined ? '' : issue.path.map(String).join('.')
  const where = path === '' ? subject : `${subject}: ${path}`
  throw new GatewayError('invalid-request', `${where}: ${issue?.message ?? 'not understood'}.`, { param: path })
}

export type { JsonObject, Provider, Store }
