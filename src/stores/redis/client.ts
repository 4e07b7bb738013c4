import type { BulkLimits } from '../bounds.ts'

/** ioredis: `new Redis()` and `new Cluster()`. Set `enableOfflineQueue: false`, so that an outage is reported at once. */
export interface IoredisClient {
  evalsha(sha: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>
  eval(script: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>
  /** Distinguishes this client from an Upstash client. */
  call(command: string): Promise<unknown>
}

interface ScriptArguments {
  keys: string[]
  arguments: string[]
}

/** node-redis: `createClient()` and `createCluster()`. Set `disableOfflineQueue: true`. */
export interface NodeRedisClient {
  evalSha(sha: string, options: ScriptArguments): Promise<unknown>
  eval(script: string, options: ScriptArguments): Promise<unknown>
}

/** An HTTP client with the interface of Upstash. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>
  eval(script: string, keys: string[], args: string[]): Promise<unknown>
}

/** A connected client of Redis, in one of three shapes. */
export type RedisClient = IoredisClient | NodeRedisClient | UpstashClient

/** A Lua script, and the SHA-1 of its text under which the server caches it. */
export interface Script {
  readonly text: string
  readonly sha: Promise<string>
}

/** Runs a script on the keys of one slot, in one call. `base` is the start of all its keys. */
type RunScript = (script: Script, base: string, request: object) => Promise<unknown>

export function defineScript(text: string): Script {
  return { text, sha: sha1(text) }
}

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-1', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/**
 * Sends EVALSHA, and EVAL when the server does not have the script: after a restart, SCRIPT FLUSH or a failover.
 * Scripts take and return JSON. Upstash clients parse results that are JSON, others return text.
 */
export function createRunScript(client: RedisClient): RunScript {
  const send = senderOf(client)
  return async (script, base, request) => {
    const argument = JSON.stringify(request)
    const sha = await script.sha
    let result: unknown
    try {
      result = await send('sha', sha, base, argument)
    } catch (error) {
      if (!isMissingScript(error)) throw error
      result = await send('text', script.text, base, argument)
    }
    return typeof result === 'string' ? JSON.parse(result) : result
  }
}

type Send = (how: 'sha' | 'text', script: string, base: string, argument: string) => Promise<unknown>

/**
 * The keys that a script declares: two absent keys of one slot. While the slot moves to another node of a cluster, a
 * call with one absent key is sent to the new node, which lacks some counters and would count from zero. A call with
 * two is answered TRYAGAIN until the slot has moved.
 */
function keysOf(base: string): [string, string] {
  return [base, `${base}:slot`]
}

function senderOf(client: RedisClient): Send {
  if ('evalSha' in client) {
    return (how, script, base, argument) => {
      const options = { keys: keysOf(base), arguments: [argument] }
      return how === 'sha' ? client.evalSha(script, options) : client.eval(script, options)
    }
  }
  if ('call' in client) {
    return (how, script, base, argument) =>
      how === 'sha'
        ? client.evalsha(script, 2, ...keysOf(base), argument)
        : client.eval(script, 2, ...keysOf(base), argument)
  }
  return (how, script, base, argument) =>
    how === 'sha' ? client.evalsha(script, keysOf(base), [argument]) : client.eval(script, keysOf(base), [argument])
}

function isMissingScript(error: unknown): boolean {
  return error instanceof Error && error.message.includes('NOSCRIPT')
}

/** Shared by the parts of a Redis store. */
export interface RedisContext {
  /** Runs a script on the data of one owner; undefined for values and logs. */
  readonly run: (script: Script, owner: string | undefined, request: object) => Promise<unknown>
  readonly limits: BulkLimits
  /** True when each owner's data is in a slot of its own. */
  readonly isSharded: boolean
}

interface ContextOptions {
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
