import type { BulkLimits } from '../bounds.ts'
import type { RunScript, Script } from './client.ts'

/** What the parts of a Redis store share. */
export interface RedisContext {
  /** Runs a script on the data of one owner; undefined for values and logs. */
  readonly run: (script: Script, owner: string | undefined, request: object) => Promise<unknown>
  readonly limits: BulkLimits
  /** True when each owner's data is in a slot of its own. */
  readonly isSharded: boolean
}

export interface ContextOptions {
  readonly runScript: RunScript
  readonly prefix: string
  readonly limits: BulkLimits
  readonly isSharded: boolean
  readonly now: (() => number) | undefined
}

/** The braces are a hash tag: a cluster chooses the slot by the text between them. */
export function createContext({ runScript, prefix, limits, isSharded, now }: ContextOptions): RedisContext {
  const tagOf = (owner: string): string => owner.replaceAll('}', '%7D')
  const baseOf = (owner: string | undefined): string =>
    isSharded && owner !== undefined ? `${prefix}:{o:${tagOf(owner)}}` : `{${tagOf(prefix)}}`
  return {
    run: (script, owner, request) =>
      runScript(script, baseOf(owner), now === undefined ? request : { ...request, now: now() }),
    limits,
    isSharded,
  }
}
