import { chain, type MaybePromise, isPromise } from '../core/async.ts'
import type { Model } from '../core/ports.ts'
import { add, type NanoUsd, ZERO } from '../core/money.ts'
import type { WaterfallResult } from '../savings/tier.ts'
import { Attempts } from '../upstream/attempts.ts'
import {
  MAX_HEADER_WAIT_MS,
  type Planned,
  type PromptCounts,
  type Reserved,
  type Size,
  type AnswerKeeper,
  type PublishedAnswer,
  type ReplayPlan,
  type RequestOutcome,
} from './exchange.ts'
import type { MarkPrompt, Services, AnswerCache, SharedAnswer } from './services.ts'
import type { CacheMiss } from '../cache/semantic-cache.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import type { FlightRole, Leader } from '../replay/shared-work.ts'
import type { LiveStream } from '../replay/live-stream.ts'
import { hitBill } from './charge.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import type { FollowStream } from './follow.ts'
import { answerHeadersOf } from './measure.ts'

export function plan(reserved: Reserved, services: Services): MaybePromise<Planned> {
  if (isSentUnchanged(reserved)) return planUnchanged(reserved)
  const recalled = recall(reserved, services)
  return isPromise(recalled)
    ? recalled.then((result) => planRecalled(reserved, result, services))
    : planRecalled(reserved, recalled, services)
}

function planRecalled(reserved: Reserved, recalled: RecallResult, services: Services): MaybePromise<Planned> {
  if ('replay' in recalled) return Object.assign(reserved, { plan: recalled.replay })
  if ('recalling' in recalled) {
    const planning = recalled.recalling.then((late) => planRecalled(reserved, late, services))
    // `callUpstream` handles the error.
    planning.catch(() => {})
    const planned = planUnchanged(reserved, MAY_BE_SHARED)
    Object.assign(planned.plan, { planning })
    return planned
  }
  if (!reserved.needsPauses) return planPrompt(reserved, recalled, services)
  return yieldToEventLoop().then(() => planPrompt(reserved, recalled, services))
}

function planPrompt(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const shortened = shorten(reserved, recalled, services)
  const { markPrompt } = services
  if (markPrompt === undefined || !needsCacheMarkers(reserved)) return shortened
  return chain(shortened, (planned) => addCacheMarkers(planned, markPrompt, services))
}

function shorten(reserved: Reserved, recalled: RecallMiss, services: Services): MaybePromise<Planned> {
  const { steering, size, resolved } = reserved
  const { model } = resolved.routes[0]
  if (services.waterfall.isTooSmall({ model, steering }, () => size.bound)) return planUnchanged(reserved, recalled)
  return optimize(reserved, recalled, services).catch((error: unknown) => {
    recalled.keeper.finish({ status: 500 })
    throw error
  })
}

/** Minimum length of a cacheable prefix, in tokens. Some models require a longer one. */
const MIN_PREFIX_TOKENS = 1024

function needsCacheMarkers({ resolved, prompt, size, steering }: Reserved): boolean {
  return (
    steering.level !== 'off' &&
    prompt.native.dialect !== 'responses' &&
    resolved.routes.every(({ provider, model }) => provider.dialect === 'anthropic' && hasMarkerPrice(model)) &&
    size.bound >= MIN_PREFIX_TOKENS
  )
}

function hasMarkerPrice({ price }: Model): boolean {
  return price.cacheWrite !== undefined && price.cacheRead !== undefined && price.cacheRead < price.input
}

async function addCacheMarkers(planned: Planned, markPrompt: MarkPrompt, { observers }: Services): Promise<Planned> {
  const { plan, resolved, key, startedAt } = planned
  if (plan.kind === 'replay') return planned
  try {
    await plan.counts.prepare?.()
    const { model } = resolved.routes[0]
    const request = { prompt: plan.prompt, model, tokens: plan.counts.sent, owner: key.id, now: startedAt }
    const markedPrompt = await markPrompt(request)
    if (markedPrompt !== undefined) planned.plan = { ...plan, prompt: markedPrompt.prompt, markedPrompt }
  } catch (cause) {
    observers.reportFailure('markers for the prompt cache could not be added', cause)
  }
  return planned
}

async function optimize(reserved: Reserved, { keeper, spent }: RecallMiss, services: Services): Promise<Planned> {
  const { prompt, resolved, size, steering, key, cancellation } = reserved
  const route = resolved.routes[0]
  if (size.mayContainLargeMedia) await (await loadOnDemand()).digestMedia(prompt)
  await services.meter.prepare(prompt, cancellation.signal)
  const rewritten = await services.waterfall({
    prompt,
    modelName: resolved.name,
    model: route.model,
    tokens: size.estimate,
    steering,
    owner: key.id,
    small: services.smallModel(route),
    signal: cancellation.signal,
    now: services.runtime.now(),
  })
  const optimization = { ...rewritten, spent: add(rewritten.spent, spent) }
  const { rewrite } = optimization
  reserved.plan = {
    kind: 'upstream',
    prompt: rewrite?.prompt ?? prompt,
    optimization,
    counts: { original: optimization.tokens, sent: rewrite?.tokens ?? optimization.tokens },
    keeper,
    attempts: new Attempts(cancellation),
  }
  return reserved as Planned
}

/** True for compaction, background work, and conversations stored by the upstream. */
export function isSentUnchanged({ prompt, format }: Pick<Reserved, 'prompt' | 'format'>): boolean {
  const { value } = prompt.native
  if (value['thread'] !== undefined || prompt.operation !== undefined) return true
  return format.turns !== undefined && (value['background'] === true || format.turns.refersToUpstream(prompt))
}

export function planUnchanged(reserved: Reserved, { keeper, spent }: RecallMiss = NOT_CACHED): Planned {
  const { prompt, size, cancellation } = reserved
  const optimization = new UnchangedPrompt(size, spent)
  const attempts = new Attempts(cancellation)
  reserved.plan = { kind: 'upstream', prompt, optimization, counts: optimization, keeper, attempts }
  return reserved as Planned
}

class UnchangedPrompt implements WaterfallResult, PromptCounts {
  readonly spent: NanoUsd
  readonly verdicts: WaterfallResult['verdicts'] = []
  readonly #size: Size

  constructor(size: Size, spent: NanoUsd) {
    this.#size = size
    this.spent = spent
  }

  get tokens(): number {
    return this.#size.estimate
  }

  prepare(): MaybePromise<void> {
    return this.#size.prepare()
  }

  get original(): number {
    return this.#size.estimate
  }

  get sent(): number {
    return this.#size.estimate
  }
}

interface RecallMiss {
  readonly keeper: AnswerKeeper
  /** Cost of the cache's verifier. */
  readonly spent: NanoUsd
}

type AnswerLeader = Leader<SharedAnswer, PublishedAnswer>
type AnswerRole = FlightRole<SharedAnswer, PublishedAnswer>
type Recalled = { readonly replay: ReplayPlan } | RecallMiss
/** `recalling` resolves after the headers of the stream have left. */
type RecallResult = Recalled | { readonly recalling: Promise<Recalled> }

const NOT_CACHED: RecallMiss = { keeper: { finish: () => {} }, spent: ZERO }
/** The stream is stored, because the request may still become one that others follow. */
const MAY_BE_SHARED: RecallMiss = { keeper: { finish: () => {}, share: () => {} }, spent: ZERO }

function recall(reserved: Reserved, services: Services): MaybePromise<RecallResult> {
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
    headers: answerHeadersOf(request, resolved.routes[0].provider),
    directives: readCacheDirectives((name) => request.header(name)),
    cancellation,
    requestId: id,
    smallModel: () => services.smallModel(resolved.routes[0]),
    similar: key.permissions.cacheSimilar ?? resolved.routes[0].model.cacheSimilar,
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
  const { key, cancellation, prompt } = reserved
  const joinOptions = { cancellation, followsStream: canFollow(reserved) }
  const role = singleFlight.join(`${key.id} ${miss.id}`, joinOptions)
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

const followStream: FollowStream = async (...parameters) => (await loadOnDemand()).followStream(...parameters)

/** Only streams with one choice can be followed. */
function canFollow({ prompt }: Reserved): boolean {
  return prompt.stream && (prompt.settings.choices ?? 1) === 1
}

function joinAs(role: AnswerRole, reserved: Reserved, miss: CacheMiss, services: Services): MaybePromise<Recalled> {
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

function lead(reserved: Reserved, miss: CacheMiss, leader: AnswerLeader, services: Services): MaybePromise<Recalled> {
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
