/** ioredis: `new Redis()` or `new Cluster()`. Set `enableOfflineQueue: false` to report outages immediately. */
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

/** node-redis: `createClient()` or `createCluster()`. Set `disableOfflineQueue: true`. */
export interface NodeRedisClient {
  evalSha(sha: string, options: ScriptArguments): Promise<unknown>
  eval(script: string, options: ScriptArguments): Promise<unknown>
}

/** An Upstash client, or an HTTP client with the same interface. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>
  eval(script: string, keys: string[], args: string[]): Promise<unknown>
}

/** A connected Redis client: ioredis, node-redis or Upstash. */
export type RedisClient = IoredisClient | NodeRedisClient | UpstashClient

export interface Script {
  readonly text: string
  readonly sha: Promise<string>
}

/** Runs a script on the data of `owner` or, without an owner, in the shared slot. Usually makes one server call. */
export type RunScript = (script: Script, request: object, owner?: string) => Promise<unknown>

export function defineScript(text: string): Script {
  return { text, sha: sha1(text) }
}

/**
 * Preamble of every script. All keys begin with KEYS[1], whose hash tag puts them in one slot.
 *
 * Without `request.now`, all processes use the server's clock. With `request.now`, the scripts check expiries
 * themselves, and the server deletes expired keys an hour late, because its clock may be ahead of the caller's. Amounts
 * are returned as text, because cjson writes only 14 digits.
 */
export const PREAMBLE: string = `
local base, request = KEYS[1], cjson.decode(ARGV[1])
local call = redis.call
local now, slack = request.now, 3600000
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
local function text(number) return string.format('%.0f', number) end
local function lifetime(expiresAt) return text(math.max(1, expiresAt - now + slack)) end
local function keepFor(key, ms)
  if call('PTTL', key) < ms + slack then call('PEXPIRE', key, text(ms + slack)) end
end
`

async function sha1(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-1', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

interface RunOptions {
  readonly prefix: string
  readonly isSharded: boolean
  readonly now: (() => number) | undefined
}

/**
 * Sends EVALSHA, or EVAL if the server does not have the script, for example after a restart, SCRIPT FLUSH or a
 * failover. Scripts take and return JSON. Clients with the Upstash interface parse the returned JSON.
 */
export function createRunScript(client: RedisClient, { prefix, isSharded, now }: RunOptions): RunScript {
  const send = createSend(client)
  /** The braces form a hash tag, from which a cluster derives the slot. */
  const baseOf = (owner: string | undefined): string =>
    isSharded && owner !== undefined ? `${prefix}:{o:${escapeTag(owner)}}` : `{${escapeTag(prefix)}}`
  return async (script, request, owner) => {
    const base = baseOf(owner)
    const argument = JSON.stringify(now === undefined ? request : { ...request, now: now() })
    const sha = await script.sha
    let result: unknown
    try {
      result = await send('sha', sha, base, argument)
    } catch (error) {
      if (!(error instanceof Error && error.message.includes('NOSCRIPT'))) throw error
      result = await send('text', script.text, base, argument)
    }
    return typeof result === 'string' ? JSON.parse(result) : result
  }
}

function escapeTag(name: string): string {
  return name.replaceAll('}', '%7D')
}

type Send = (form: 'sha' | 'text', script: string, base: string, argument: string) => Promise<unknown>

/**
 * Every script declares two nonexistent keys in the same slot. While a slot moves to another cluster node, a call with
 * one nonexistent key goes to the new node, which lacks some counters and would count from zero. A call with two
 * nonexistent keys fails with TRYAGAIN until the move is complete.
 */
function keysOf(base: string): [string, string] {
  return [base, `${base}:slot`]
}

function createSend(client: RedisClient): Send {
  if ('evalSha' in client) {
    return (form, script, base, argument) => {
      const options = { keys: keysOf(base), arguments: [argument] }
      return form === 'sha' ? client.evalSha(script, options) : client.eval(script, options)
    }
  }
  if ('call' in client) {
    return (form, script, base, argument) =>
      client[form === 'sha' ? 'evalsha' : 'eval'](script, 2, ...keysOf(base), argument)
  }
  return (form, script, base, argument) => client[form === 'sha' ? 'evalsha' : 'eval'](script, keysOf(base), [argument])
}
