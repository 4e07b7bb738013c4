import { GatewayError } from '../../core/errors.ts'
import { asObject, asString, isJsonObject, parseJson, type JsonObject } from '../../core/json.ts'
import type { Provider, UpstreamCaller } from '../../core/ports.ts'
import { quotaOf, type Store } from '../../core/store.ts'
import type { Endpoint } from '../../http/router.ts'
import {
  notEnabled,
  type PassthroughName,
  type PassthroughOptions,
  type PassthroughTarget,
} from './parse-passthrough.ts'
import { passThrough } from './pass-through.ts'
import { Stages, createExchange } from '../../kernel/run.ts'
import { type Call, type Handler } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'
import { upstreamError } from '../../upstream/attempts.ts'
import { authenticate, findCaller } from '../../kernel/authenticate.ts'
import { chatClient } from '../../formats/chat/client.ts'
import { mapInSlices } from '../../core/map-in-slices.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { sendWithRateStatus } from '../../kernel/endpoint-responses.ts'

interface PassthroughDependencies {
  readonly services: Services
  readonly store: Store
  readonly options: PassthroughOptions
}

/** The vendor's path is built from validated segments. The caller's path and query are never forwarded. */
export function passthroughEndpoints(dependencies: PassthroughDependencies): readonly Endpoint<Handler>[] {
  const { services, options } = dependencies
  const endpoint = (name: PassthroughName, suffix: '' | '/:action'): Endpoint<Handler> => ({
    method: 'POST',
    path: `/v1/${name}${suffix}`,
    handle: passthroughHandler(services, (call) => {
      const path = suffix === '' ? `/${name}` : `/${name}/${segmentOf(call, 'action')}`
      return { name, endpoint: options[name], method: 'POST', path }
    }),
  })
  return [
    endpoint('images', '/:action'),
    endpoint('audio', '/:action'),
    endpoint('moderations', ''),
    endpoint('completions', ''),
    endpoint('rerank', ''),
    ...fileEndpoints(dependencies),
  ]
}

/** A key can use only the files that it created, although the vendor's account contains the files of all keys. */
function fileEndpoints({ services, store, options }: PassthroughDependencies): readonly Endpoint<Handler>[] {
  const registry = createFileRegistry(store, services)
  const shared = { name: 'files', endpoint: options.files } as const
  const fileEndpoint = (method: 'GET' | 'DELETE', suffix: string): Endpoint<Handler> => ({
    method,
    path: `/v1/files/:id${suffix}`,
    handle: passthroughHandler(services, (call) => {
      const id = segmentOf(call, 'id')
      const forget = (scope: string): Promise<void> => registry.forget(scope, id)
      return {
        ...shared,
        method,
        path: `/files/${id}${suffix}`,
        findProvider: (scope) => registry.providerOf(scope, id),
        // A file that has expired at the vendor must not count toward the key's quota.
        ...(method === 'DELETE' && { onResponse: forget, onNotFound: forget }),
      }
    }),
  })
  return [
    {
      method: 'POST',
      path: '/v1/files',
      handle: passthroughHandler(services, () => ({
        ...shared,
        method: 'POST',
        path: '/files',
        onResponse: registry.register,
      })),
    },
    {
      method: 'GET',
      path: '/v1/files',
      handle: async (call) => {
        const caller = await findCaller(call, services)
        if (options.files === undefined) throw notEnabled('files')
        return sendWithRateStatus(call, caller, services, await registry.list(caller.scope, call.query))
      },
    },
    fileEndpoint('GET', ''),
    fileEndpoint('DELETE', ''),
    fileEndpoint('GET', '/content'),
  ]
}

function passthroughHandler(services: Services, targetOf: (call: Call) => PassthroughTarget): Handler {
  return (call) => {
    const stages = Stages.begin(authenticate).next((exchange) => passThrough(exchange, targetOf(call), services))
    return stages.run(createExchange(call, chatClient), services)
  }
}

/** Matches ids that are safe in a path and in every store. */
const SAFE_SEGMENT = /^[\w-]{1,200}$/

function segmentOf(call: Call, variable: string): string {
  const segment = call.variables[variable] ?? ''
  if (SAFE_SEGMENT.test(segment)) return segment
  throw new GatewayError(
    'not-found',
    'A path segment is invalid. Use up to 200 letters, digits, hyphens and underscores.',
  )
}

const MAX_FILES_PER_PAGE = 1_000
const DEFAULT_PAGE_SIZE = 100
const MAX_CONCURRENT_READS = 16
const MAX_FILE_OBJECT_LENGTH = 2_000

const prefixOf = (scope: string): string => `file:${scope}:`

interface StoredFile {
  readonly provider: string
  readonly file: JsonObject
}

async function readFile(store: Pick<Store, 'get'>, storeKey: string): Promise<StoredFile | undefined> {
  const { provider, file } = asObject(parseJson((await store.get(storeKey)) ?? '')) ?? {}
  return typeof provider === 'string' && isJsonObject(file) ? { provider, file } : undefined
}

/** For a file that no key can use. */
async function deleteAtVendor(
  provider: Provider,
  id: string,
  { runtime, timeouts }: Pick<Services, 'runtime' | 'timeouts'>,
  caller?: UpstreamCaller,
): Promise<void> {
  const { signal } = new AbortController()
  const call = { method: 'DELETE', path: `/files/${id}`, signal, runtime, timeouts } as const
  const deleted = await provider.passThrough?.({ ...call, ...(caller !== undefined && { caller }) })
  deleted?.source.abort()
}

/** A file that its vendor does not delete is logged, because its record is the only trace of it. */
export async function purgeFiles(scope: string, store: Store, services: Services): Promise<void> {
  const prefix = prefixOf(scope)
  const [keyId = '', customer] = scope.split('~')
  for (let after: string | undefined; ;) {
    const storeKeys = await store.list(prefix, { limit: DEFAULT_PAGE_SIZE, ...(after !== undefined && { after }) })
    await mapInSlices(storeKeys, MAX_CONCURRENT_READS, async (storeKey) => {
      const provider = services.provider((await readFile(store, storeKey))?.provider ?? '')
      const id = storeKey.slice(prefix.length)
      try {
        if (provider !== undefined) await deleteAtVendor(provider, id, services, { keyId, customer, payer: 'operator' })
      } catch (cause) {
        services.log.failure('a file could not be deleted at its vendor', cause, {
          provider: provider?.name ?? null,
          file_id: id,
        })
      }
      await store.delete(storeKey)
    })
    if (storeKeys.length < DEFAULT_PAGE_SIZE) return
    after = storeKeys.at(-1)
    await yieldToEventLoop()
  }
}

function createFileRegistry(store: Store, services: Pick<Services, 'runtime' | 'timeouts'>) {
  const read = (storeKey: string): Promise<StoredFile | undefined> => readFile(store, storeKey)

  return {
    providerOf: async (scope: string, id: string): Promise<string> => {
      const stored = await read(`${prefixOf(scope)}${id}`)
      if (stored === undefined) throw fileNotFoundError(id)
      return stored.provider
    },
    register: async (scope: string, provider: Provider, file: JsonObject): Promise<void> => {
      const id = asString(file['id']) ?? ''
      if (!SAFE_SEGMENT.test(id)) throw upstreamError(provider.name, 'sent a file without a valid id')
      const value = JSON.stringify({ provider: provider.name, file: shortenFile(file) })
      try {
        await store.set(`${prefixOf(scope)}${id}`, value, { quota: quotaOf('file', scope) })
      } catch (error) {
        await deleteAtVendor(provider, id, services).catch(() => undefined)
        throw error
      }
    },
    forget: async (scope: string, id: string): Promise<void> => void (await store.delete(`${prefixOf(scope)}${id}`)),
    list: async (scope: string, query: URLSearchParams): Promise<JsonObject> => {
      const prefix = prefixOf(scope)
      const limit = parseLimit(query)
      const after = query.get('after')
      if (after !== null && !SAFE_SEGMENT.test(after)) {
        const message = 'after: expected the id of the last file of the previous page.'
        throw new GatewayError('invalid-request', message, { param: 'after' })
      }
      const start = after === null ? {} : { after: `${prefix}${after}` }
      const storeKeys = await store.list(prefix, { ...start, limit: limit + 1 })
      const stored = await mapInSlices(storeKeys.slice(0, limit), MAX_CONCURRENT_READS, read)
      const files = stored.flatMap((entry) => (entry === undefined ? [] : [entry.file]))
      const purpose = query.get('purpose')
      const data = purpose === null ? files : files.filter((file) => file['purpose'] === purpose)
      return { object: 'list', data, has_more: storeKeys.length > limit }
    },
  }
}

function shortenFile(file: JsonObject): JsonObject {
  if (JSON.stringify(file).length <= MAX_FILE_OBJECT_LENGTH) return file
  const { id, object, bytes, created_at, purpose } = file
  return { id, object, bytes, created_at, purpose }
}

function parseLimit(query: URLSearchParams): number {
  const text = query.get('limit')
  const limit = text === null ? DEFAULT_PAGE_SIZE : Number(text)
  if (Number.isInteger(limit) && limit >= 1) return Math.min(limit, MAX_FILES_PER_PAGE)
  const message = `limit is ${String(text).slice(0, 20)}; expected an integer of at least 1.`
  throw new GatewayError('invalid-request', message, { param: 'limit' })
}

/** The message is the same for an unknown id and for another key's file. */
function fileNotFoundError(id: string): GatewayError {
  return new GatewayError(
    'not-found',
    `File with id ${JSON.stringify(id)} not found. Only the key that created a file can use it.`,
    { param: 'file_id' },
  )
}
