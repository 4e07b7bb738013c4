import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { MaybePromise } from '../core/async.ts'
import type { TransportRequest } from '../core/ports.ts'
import { apiKeySchema } from './provider-options.ts'

/** A key, or a function that returns the one to use now: it is called for each request, so that tokens can rotate. */
export type ApiKey = string | (() => MaybePromise<string>)

export const apiKeySourceSchema: z.ZodMiniType<ApiKey> = z.union([
  apiKeySchema,
  z.custom<() => MaybePromise<string>>((value) => typeof value === 'function', {
    error: 'expected the key as a string, or a function that returns it',
  }),
])

/** Adds to a request what proves who sends it. */
export type SignRequest = (request: TransportRequest) => MaybePromise<TransportRequest>

/** The part of an HTTP provider's options that concerns its key. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string>>
  /** What no message may repeat. Keys of a function are added when they are first used. */
  readonly secrets: readonly string[]
  readonly sign?: SignRequest
}

export interface KeySource {
  /** The provider, for messages. */
  readonly who: string
  /** The header that carries the key. @default 'authorization' */
  readonly header?: string
  readonly apiKey: ApiKey | undefined
  /** Environment variables that are read by the first call when there is no `apiKey`. */
  readonly variables: readonly string[]
}

/** Rotated keys of which one may still be in use. */
const MAX_SECRETS = 4

/** Sends the key in a header: a text at once, every other key as soon as a request needs it. */
export function keyCredentials({ who, header = 'authorization', apiKey, variables }: KeySource): Credentials {
  const write = (key: string): Record<string, string> => ({
    [header]: header === 'authorization' ? `Bearer ${key}` : key,
  })
  if (typeof apiKey === 'string') return { headers: write(apiKey), secrets: [apiKey] }
  const secrets: string[] = []
  return {
    headers: {},
    secrets,
    sign: async (request) => {
      const key = apiKey === undefined ? fromEnvironment(variables) : await apiKey()
      if (!apiKeySchema.safeParse(key).success || key === undefined) throw missingKey(who, apiKey ? [] : variables)
      if (!secrets.includes(key) && secrets.unshift(key) > MAX_SECRETS) secrets.pop()
      return { ...request, headers: { ...request.headers, ...write(key) } }
    },
  }
}

/** The first of the variables that is set; undefined where there is none, or no environment. */
export function fromEnvironment(variables: readonly string[]): string | undefined {
  return variables.map((name) => globalThis.process?.env?.[name]).find((value) => value)
}

/** The operator must act: no retry helps, and no circuit opens. */
export function missingKey(who: string, variables: readonly string[]): GatewayError {
  const remedy = variables.length === 0 ? 'the option apiKey' : `${variables.join(' or ')}, or the option apiKey`
  return new GatewayError('overloaded', `The provider "${who}" has no API key. Set ${remedy}.`, {
    advice: { shouldRetry: 'false' },
    isCallerSide: true,
  })
}
