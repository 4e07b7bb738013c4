import type { CacheMiss } from '../cache/semantic-cache.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { type NanoUsd, ZERO } from '../core/money.ts'
import type { LiveStream } from '../replay/live-stream.ts'
import type { FlightRole, Leader } from '../replay/shared-work.ts'
import { hitBill } from './charge.ts'
import type { AnswerKeeper, PublishedAnswer, ReplayPlan, RequestOutcome, Reserved } from './exchange.ts'
import type { FollowStream } from './follow.ts'
import type { AnswerCache, Services, SharedAnswer } from './services.ts'

export interface RecallMiss {
  readonly keeper: AnswerKeeper
  /** Cost of the cache's verifier. */
  readonly spent: NanoUsd
}

type AnswerLeader = Leader<SharedAnswer, PublishedAnswer>

type AnswerRole = FlightRole<SharedAnswer, PublishedAnswer>

type RecallResult = { readonly replay: ReplayPlan } | RecallMiss

export const NOT_CACHED: RecallMiss = { keeper: { finish: () => {} }, spent: ZERO }

export function recall(reserved: Reserved, services: Services): MaybePromise<RecallResult> {
  const { answerCache } = services
  if (answerCache === undefined) return NOT_CACHED
  const ready = reserved.size.mayContainLargeMedia
    ? loadOnDemand().then(({ digestBlocks }) => digestBlocks(reserved.prompt))
    : undefined
  return chain(ready, () => lookUp(reserved, answerCache, services))
}

const loadOnDemand = () => import('./on-demand.ts')

function lookUp(reserved: Reserved, answerCache: AnswerCache, services: Services): MaybePromise<RecallResult> {
  const { prompt, key, resolved, cancellation, request, id } = reserved
  const lookupResult = answerCache.cache.lookUp({
    prompt,
    keyId: key.id,
    modelName: resolved.name,
    beta: request.header('anthropic-beta'),
    directives: readCacheDirectives((name) => request.header(name)),
    cancellation,
    requestId: id,
    smallModel: () => services.smallModel(resolved.routes[0]),
  })
  return chain(lookupResult, (answer) => {
    if (answer.hit) return { replay: replayOf(reserved, answer, answer.spent) }
    if (answer.id === undefined) return { keeper: createKeeper(reserved, answer, services), spent: answer.spent }
    return join(reserved, answer, answerCache, services)
  })
}

function join(
  reserved: Reserved,
  miss: CacheMiss,
  { singleFlight }: AnswerCache,
  services: Services,
): MaybePromise<RecallResult> {
  const { key, cancellation } = reserved
  const joinOptions = { cancellation, followsStream: canFollow(reserved) }
  return chain(singleFlight.join(`${key.id} ${miss.id}`, joinOptions), (role) => joinAs(role, reserved, miss, services))
}

const followStream: FollowStream = async (...parameters) => (await loadOnDemand()).followStream(...parameters)

/** Only streams with one choice can be followed. */
function canFollow({ prompt }: Reserved): boolean {
  return prompt.stream && (prompt.settings.choices ?? 1) === 1
}

function joinAs(role: AnswerRole, reserved: Reserved, miss: CacheMiss, services: Services): MaybePromise<RecallResult> {
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

function lead(
  reserved: Reserved,
  miss: CacheMiss,
  leader: AnswerLeader,
  services: Services,
): MaybePromise<RecallResult> {
  const { spent, claim } = miss
  const recallMiss: RecallMiss = { keeper: createKeeper(reserved, miss, services, leader), spent }
  if (claim === undefined) return recallMiss
  return joinOtherProcess(reserved, claim, services).then(
    async (joined) => {
      if (joined === undefined) return recallMiss
      if ('stream' in joined)
        return (await followStream(reserved, miss, { live: joined.stream, leader }, services)) ?? recallMiss
      leader.complete({ shared: joined })
      miss.countAsHit()
      return { replay: replayOf(reserved, joined, spent) }
    },
    (reason: unknown) => {
      leader.complete('handed-over')
      throw reason
    },
  )
}

async function joinOtherProcess(
  reserved: Reserved,
  claim: NonNullable<CacheMiss['claim']>,
  services: Services,
): ReturnType<typeof claim.join<LiveStream>> {
  if (!canFollow(reserved) || claim.streamStore === undefined) return claim.join()
  const onDemand = await loadOnDemand()
  return claim.join(onDemand.createClaimStreamSearch(claim, reserved.key.id, services))
}

function replayOf(reserved: Reserved, { completion, promptTokens }: SharedAnswer, spent: NanoUsd = ZERO): ReplayPlan {
  const bill = hitBill(reserved, { promptTokens, usage: completion.usage, spent })
  return { kind: 'replay', answer: completion, bill }
}

/** The caller does not wait until the answer is stored, because the embedder may be slow. */
function createKeeper(reserved: Reserved, miss: CacheMiss, services: Services, leader?: AnswerLeader): AnswerKeeper {
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
      services.observers.reportFailure('an answer could not be stored in the cache', cause)
    }
    try {
      const shared = storeAndShare(miss, { completion: completion(), promptTokens: bill.originalTokens }, leader)
      if (isPromise(shared)) shared.catch(handleFailure)
    } catch (cause) {
      handleFailure(cause)
    }
  }
  if (leader === undefined || !canFollow(reserved)) return { finish }
  const share = (live: PublishedAnswer): void => {
    leader.publish(live)
    if (claim?.streamStore === undefined) return
    void loadOnDemand().then((onDemand) => onDemand.publishToOtherProcesses(live, claim, reserved.key.id, services))
  }
  return { finish, share }
}

function storeAndShare(miss: CacheMiss, shared: SharedAnswer, leader: AnswerLeader | undefined): MaybePromise<void> {
  return chain(miss.store(shared.completion, shared.promptTokens), (isStored) => {
    leader?.complete(isStored ? { shared } : 'not-shared')
    return miss.claim?.release()
  })
}
