import { sha256 } from '#hash'
import { hasFlag, type HttpRequest } from '../../core/http.ts'
import { digestWithPauses, longBlockDigests } from '../../core/cache.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { type CacheMiss, type CacheQuery, createSemanticCache, type SemanticCache } from './semantic-cache.ts'
import type { SemanticCacheOptions } from './cache-options.ts'
import { chain, isPromise, type MaybePromise } from '../../core/async.ts'
import { type NanoUsd, ZERO } from '../../core/money.ts'
import type { LiveStream } from '../../streams/live-stream.ts'
import {
  createSingleFlight,
  type FlightRole,
  type Leader,
  type SharedResponse,
  type SingleFlight,
} from './single-flight.ts'
import { MAX_HEADER_WAIT_MS, type Reserved } from '../../kernel/exchange.ts'
import type { FollowStream } from './follow.ts'
import { smallModelOf } from '../../kernel/small-model.ts'
import type { Services } from '../../kernel/services.ts'
import { readCacheDirectives } from '../../http/cache-directives.ts'
import type { RequestOutcome } from '../../kernel/finished-request.ts'
import type {
  Recalled,
  RecallMiss,
  RecallResult,
  ResponseKeeper,
  PublishedResponse,
  ReplayPlan,
} from '../../kernel/lookup.ts'
import { hitBill } from './hit-bill.ts'
import { varyHeadersOf } from './vary-headers.ts'

type ResponseLeader = Leader<SharedResponse, PublishedResponse>
type ResponseRole = FlightRole<SharedResponse, PublishedResponse>

export interface ResponseCache extends SemanticCache {
  /** Looks for a stored response, or for an identical request whose response this one can share. */
  recall(reserved: Reserved, services: Services): MaybePromise<RecallResult | undefined>
}

interface CacheWithFlights {
  readonly cache: SemanticCache
  /** Created with the first request that uses the cache. */
  singleFlight?: SingleFlight<SharedResponse, PublishedResponse>
}

export function createResponseCache(options: SemanticCacheOptions): ResponseCache {
  const cache = createSemanticCache(options)
  const withFlights: CacheWithFlights = { cache }
  return {
    ...cache,
    recall: (reserved, services) => {
      if (!reserved.size.mayContainLargeMedia) return lookUp(reserved, withFlights, services)
      const digesting = digestWithPauses(longBlockDigests(reserved.prompt, sha256), yieldToEventLoop)
      return digesting.then(() => lookUp(reserved, withFlights, services))
    },
  }
}

/** Maximum time that a request waits for an identical one before it calls the upstream itself, in milliseconds. */
const FOLLOW_TIMEOUT_MS = 30_000

const loadFollow = () => import('./follow.ts')

function lookUp(
  reserved: Reserved,
  responseCache: CacheWithFlights,
  services: Services,
): MaybePromise<RecallResult | undefined> {
  const { prompt, key, caller, resolved, cancellation, request, id } = reserved
  const query: CacheQuery = {
    prompt,
    keyId: caller.scope,
    hasOwnVendorKey: caller.context.payer === 'customer',
    modelName: resolved.name,
    headers: varyHeadersOf(request, resolved.routes[0].provider) + (reserved.isSteered ? shorteningOf(request) : ''),
    directives: readCacheDirectives((name) => request.header(name)),
    cancellation,
    requestId: id,
    smallModel: () => smallModelOf(reserved, resolved.routes[0], services),
    similar: key.permissions.cacheSimilar ?? resolved.routes[0].model.cacheSimilar,
  }
  if (reserved.isDryRun) return peek(reserved, query, responseCache)
  return chain(responseCache.cache.lookUp(query), (response) => {
    if (response.hit) return { replay: { ...replayOf(reserved, response, response.spent), stored: response } }
    if (response.id === undefined) return { keeper: createKeeper(reserved, response, services), spent: response.spent }
    return join(reserved, response, responseCache, services)
  })
}

/** A response to a shortened prompt may lack what was left out, so that a caller who asks for more must not get it. */
function shorteningOf(request: Pick<HttpRequest, 'header'>): string {
  const level = request.header('x-savings-level')?.trim().toLowerCase() ?? ''
  const tiers = (['x-vanishing-context', 'x-svc-rlm'] as const).filter((name) => hasFlag(request, name))
  return [level, ...tiers].join(' ').trim()
}

async function peek(
  reserved: Reserved,
  query: CacheQuery,
  { cache }: CacheWithFlights,
): Promise<RecallResult | undefined> {
  const found = await cache.peek(query)
  return found?.hit === true ? { replay: { ...replayOf(reserved, found, found.spent), stored: found } } : undefined
}

function join(
  reserved: Reserved,
  miss: CacheMiss,
  responseCache: CacheWithFlights,
  services: Services,
): MaybePromise<RecallResult> {
  const { caller, cancellation, prompt } = reserved
  const joinOptions = { cancellation, followsStream: canFollow(reserved) }
  const singleFlight = (responseCache.singleFlight ??= createSingleFlight({
    timeout: { ms: FOLLOW_TIMEOUT_MS, after: services.runtime.after },
  }))
  const role = singleFlight.join(`${caller.scope} ${miss.id}`, joinOptions)
  const recalling = chain(role, (joined) => joinAs(joined, reserved, miss, services))
  return prompt.stream && isPromise(recalling) ? recallInTime(recalling, reserved, miss, services) : recalling
}

/** The headers of a stream leave in time even if the identical request, for which this one waits, has no content yet. */
function recallInTime(
  recalling: Promise<Recalled>,
  reserved: Reserved,
  { claim }: CacheMiss,
  { runtime }: Services,
): Promise<RecallResult> {
  const dueAt = runtime.now() + MAX_HEADER_WAIT_MS
  return new Promise((resolve, reject) => {
    const cancel = runtime.after(MAX_HEADER_WAIT_MS, () => {
      reserved.headersDueAt = dueAt
      resolve({ recalling })
    })
    recalling.finally(cancel).then((recalled) => {
      // A request that owns the claim has waited for the store only.
      if (claim?.isOwned() !== true) reserved.headersDueAt = dueAt
      resolve(recalled)
    }, reject)
  })
}

const followStream: FollowStream = async (...parameters) => (await loadFollow()).followStream(...parameters)

/** Only streams with one choice can be followed. Plugins change the stream of each caller in its own way. */
function canFollow({ prompt, plugins }: Reserved): boolean {
  return prompt.stream && (prompt.settings.choices ?? 1) === 1 && plugins?.changesResponse !== true
}

function joinAs(role: ResponseRole, reserved: Reserved, miss: CacheMiss, services: Services): MaybePromise<Recalled> {
  const { spent } = miss
  if (role.role === 'leader') return lead(reserved, miss, role, services)
  const recallMiss: RecallMiss = { keeper: createKeeper(reserved, miss, services), spent }
  if (role.role === 'alone') return recallMiss
  if (role.role === 'stream') {
    return followStream(reserved, miss, { live: role.stream }, services).then((followed) => followed ?? recallMiss)
  }
  miss.countAsHit()
  return { replay: replayOf(reserved, role.value, spent) }
}

function lead(reserved: Reserved, miss: CacheMiss, leader: ResponseLeader, services: Services): MaybePromise<Recalled> {
  const { spent, claim } = miss
  const recallMiss: RecallMiss = { keeper: createKeeper(reserved, miss, services, leader), spent }
  if (claim === undefined) return recallMiss
  const find = async (): Promise<Recalled> => {
    const joined = await joinOtherProcess(reserved, claim, services)
    if (joined === undefined) return recallMiss
    if ('stream' in joined)
      return (await followStream(reserved, miss, { live: joined.stream, leader }, services)) ?? recallMiss
    leader.complete({ shared: joined })
    miss.countAsHit()
    return { replay: replayOf(reserved, joined, spent) }
  }
  return find().catch((reason: unknown) => {
    leader.complete('handed-over')
    throw reason
  })
}

async function joinOtherProcess(
  reserved: Reserved,
  claim: NonNullable<CacheMiss['claim']>,
  services: Services,
): ReturnType<typeof claim.join<LiveStream>> {
  if (!canFollow(reserved) || claim.streamStore === undefined) return claim.join()
  const onDemand = await loadFollow()
  return claim.join(onDemand.createClaimStreamSearch(claim, reserved.caller.scope, services))
}

function replayOf(reserved: Reserved, { completion, promptTokens }: SharedResponse, spent: NanoUsd = ZERO): ReplayPlan {
  const bill = hitBill(reserved, { promptTokens, usage: completion.usage, spent })
  return { kind: 'replay', response: completion, bill }
}

/** The caller does not wait until the response is stored, because the embedder may be slow. */
function createKeeper(
  reserved: Reserved,
  miss: CacheMiss,
  services: Services,
  leader?: ResponseLeader,
): ResponseKeeper {
  const { claim } = miss
  const finish = ({ status, completion, bill }: RequestOutcome): void => {
    if (status !== 200 || completion === undefined || bill === undefined) {
      leader?.complete(status === 499 ? 'handed-over' : 'not-shared')
      void claim?.release()
      return
    }
    const handleFailure = (cause: unknown): void => {
      leader?.complete('not-shared')
      void claim?.release()
      services.log.failure('a response could not be stored in the cache', cause)
    }
    try {
      const shared = storeAndShare(miss, { completion: completion(), promptTokens: bill.originalTokens }, leader)
      if (isPromise(shared)) shared.catch(handleFailure)
    } catch (cause) {
      handleFailure(cause)
    }
  }
  if (leader === undefined || !canFollow(reserved)) return { finish }
  const share = (live: PublishedResponse): void => {
    leader.publish(live)
    if (claim?.streamStore === undefined) return
    void loadFollow().then((onDemand) => onDemand.publishToOtherProcesses(live, claim, reserved.caller.scope, services))
  }
  return { finish, share }
}

function storeAndShare(
  miss: CacheMiss,
  shared: SharedResponse,
  leader: ResponseLeader | undefined,
): MaybePromise<void> {
  return chain(miss.store(shared.completion, shared.promptTokens), (isStored) => {
    leader?.complete(isStored ? { shared } : 'not-shared')
    return miss.claim?.release()
  })
}
