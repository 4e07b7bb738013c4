/** Runs the hooks of plugins. Loaded with the first request of a gateway that has plugins. */
import type { Bill } from '../../billing/bill.ts'
import type { Completion } from '../../core/completion.ts'
import { isThenable, withTimeout } from '../../core/async.ts'
import type { CallerContext } from '../../core/caller-context.ts'
import { failureStatus, GatewayError } from '../../core/errors.ts'
import type { HttpRequest } from '../../core/http.ts'
import { NO_USAGE, ZERO } from '../../core/money.ts'
import type { Route } from '../../core/ports.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import type { StreamWriter } from '../../formats/format.ts'
import { checkPromptLength, fieldCostsOf, isBackground } from '../../formats/prompt-checks.ts'
import { oneRequest } from '../../governance/reservation.ts'
import type {
  AttemptResult,
  EndedExchange,
  Plugin,
  PluginEndpoint,
  PluginExchange,
  PluginOutcome,
  PluginPrompt,
  PluginReply,
  PromptChange,
  ResponseTransformer,
} from '../../kernel/plugin.ts'
import { type AttemptRecord, Attempts } from '../../upstream/attempts.ts'
import { respond } from '../../kernel/respond.ts'
import { changePrompt, checkParts, readChange } from './change-prompt.ts'
import { billFor, prepareBill } from '../../kernel/charge.ts'
import { type Responded, type Authenticated, type Exchange, type Parsed, type Reserved } from '../../kernel/exchange.ts'
import { PromptSize } from '../../kernel/measure.ts'
import { callHook, failureOf, reportHookFailure } from './plugin-calls.ts'
import { settle } from '../../kernel/settle.ts'
import type { Services } from '../../kernel/services.ts'
import { FINISH_REASONS, transformCompletion, TransformerChain, TransformingWriter } from './transform-response.ts'
import { callUpstream } from '../../kernel/call-upstream.ts'
import { quote, reserveQuote } from '../../kernel/reserve.ts'
import { canceledError } from '../../kernel/failures.ts'
import { requestsJsonByInstruction } from '../../kernel/write-context.ts'
import type { RequestOutcome } from '../../kernel/finished-request.ts'
import type { PluginRun } from '../../kernel/plugin-run.ts'
import type { ReplayPlan } from '../../kernel/lookup.ts'
import type { ChangeableInputs } from '../../kernel/hooks.ts'

/** Responds itself and resolves with false if a plugin replies. */
export async function onRequest(parsed: Parsed, services: CustomServices): Promise<boolean> {
  const run = runOf(parsed, services)
  if (run.changesResponse) checkChangeable(parsed.prompt)
  const reply = await firstReply(parsed, run, 'onRequest', services)
  if (reply !== undefined) {
    const reserved = Object.assign(parsed, await reserveQuote(parsed, oneRequest(quote(parsed)), services))
    // The plugin has answered the received prompt, so there is nothing to restore.
    run.changesResponse = false
    const planned = Object.assign(reserved, { plan: replyPlan(reserved, reply) })
    const responded = Object.assign(planned, await callUpstream(planned, services))
    await transformResponse(responded, services)
    await respond(responded, services)
    return false
  }
  return true
}

export async function transformPrompt(parsed: Parsed, services: CustomServices): Promise<boolean> {
  const run = runOf(parsed, services)
  const { format } = parsed
  const { bodyLimits, limits, runtime } = services
  for (const plugin of services.plugins) {
    const { prompt } = parsed
    const changed = await callHook(
      {
        plugin,
        hook: 'transformPrompt',
        call: () => plugin.transformPrompt?.(run.view, viewOf(prompt)),
        check: async (change: PromptChange) => {
          const { prompt: after, bytes } = await changePrompt(prompt, change, {
            format,
            limits: bodyLimits.json,
            uuid: runtime.uuid,
          })
          checkPromptLength(after, limits.promptBytes)
          const size = new PromptSize({ prompt: after, bytes, costs: await fieldCostsOf(after) }, parsed, services)
          await size.checkFields(parsed.resolved)
          return { prompt: after, size }
        },
      },
      parsed,
      services,
    )
    if (changed !== undefined) Object.assign(parsed, changed)
  }
  return true
}

/** Resolves with the messages as the plugins changed them. */
export async function transformMessages(
  parsed: Parsed,
  inputs: ChangeableInputs,
  services: CustomServices,
): Promise<readonly Message[] | undefined> {
  if (services.plugins.every((plugin) => plugin.transformPrompt === undefined)) return undefined
  inputs.checkReadable()
  const run = runOf(parsed, services)
  let { messages } = parsed.prompt
  for (const plugin of services.plugins) {
    const prompt = { ...parsed.prompt, messages }
    const changed = await callHook(
      {
        plugin,
        hook: 'transformPrompt',
        call: () => plugin.transformPrompt?.(run.view, viewOf(prompt)),
        check: (change: PromptChange) => inputs.read({ messages: readChange(change) }),
      },
      parsed,
      services,
    )
    if (changed !== undefined) messages = changed
  }
  return messages
}

/** Before the gateway's own cache. */
export async function onLookup(
  reserved: Reserved,
  services: CustomServices,
): Promise<{ readonly replay: ReplayPlan } | undefined> {
  if (reserved.prompt.operation !== undefined || reserved.isDryRun) return undefined
  const reply = await firstReply(reserved, runOf(reserved, services), 'onLookup', services)
  return reply && { replay: replyPlan(reserved, reply) }
}

/** A stream is transformed while it is written. */
export async function transformResponse(responded: Responded, services: CustomServices): Promise<boolean> {
  const { response } = responded
  const run = runOf(responded, services)
  if (!run.changesResponse || response.kind !== 'whole') return true
  const completion = requestsJsonByInstruction(responded)
    ? (await import('../../kernel/adapt-response.ts')).unwrapJson(response.completion)
    : response.completion
  try {
    run.completion = transformCompletion(completion, run.createChain())
    return true
  } catch (error) {
    // The vendor has charged for the response, so it is billed although a plugin rejects it.
    await prepareBill(responded)
    const bill = billFor(responded, { usage: completion.usage, completion: () => completion }, services.meter)
    const failure = GatewayError.is(error) ? error : new GatewayError('internal', 'A plugin failed.', { cause: error })
    await settle(responded, { status: failureStatus(failure), failure, bill }, services)
    throw failure
  }
}

/** For endpoints without a prompt that a plugin could answer. */
export async function checkRequest(
  authenticated: Authenticated,
  services: CustomServices,
  model?: string,
): Promise<void> {
  const run = runOf(authenticated, services, model)
  for (const plugin of services.plugins) {
    await callHook(
      {
        plugin,
        hook: 'onRequest',
        call: () => plugin.onRequest?.(run.view),
        check: () => {
          // A count is free, and the reply would not be counted.
          if (run.view.endpoint === 'count') return
          throw new Error(`A plugin cannot reply to a request for ${run.view.endpoint}. Check exchange.endpoint.`)
        },
      },
      authenticated,
      services,
    )
  }
}

/** Called with each request that has been observed. Never throws. */
export function onEnd(exchange: Exchange, outcome: RequestOutcome, services: HookServices): void {
  const run = runOf(exchange, services)
  const view = run.endedView
  const ended = outcomeOf(exchange, outcome)
  run.endAttempts(ended)
  for (const plugin of services.plugins) observe(plugin, 'onEnd', () => plugin.onEnd?.(view, ended), services)
}

/** The services of a gateway that has plugins. */
export interface CustomServices extends Services {
  readonly plugins: readonly Plugin[]
}

const CLOSE_TIMEOUT_MS = 10_000

/** Rejects with the first failure, after all plugins have closed. */
export async function closePlugins({ plugins, runtime }: Pick<CustomServices, 'plugins' | 'runtime'>): Promise<void> {
  const closing = plugins.map(async (plugin) => {
    const createError = (): Error => new Error(`The plugin ${plugin.name} did not close within ${CLOSE_TIMEOUT_MS} ms.`)
    const closed = Promise.resolve(plugin.close?.())
    await withTimeout(closed, { ms: CLOSE_TIMEOUT_MS, after: runtime.after, createError })
  })
  const failed = (await Promise.allSettled(closing)).find((result) => result.status === 'rejected')
  if (failed !== undefined) throw failed.reason
}

type HookServices = Pick<CustomServices, 'plugins' | 'log' | 'runtime'>

/** A failure of an observing hook is reported, but does not affect the request. */
function observe<Returned>(
  plugin: Plugin,
  hook: 'onAttempt' | 'onEnd',
  call: () => Returned,
  { log, runtime }: HookServices,
): Returned | undefined {
  const report = (cause: unknown): void => reportHookFailure({ plugin, hook, cause }, log, runtime)
  try {
    const returned = call()
    if (isThenable(returned)) Promise.resolve(returned).catch(report)
    return returned
  } catch (cause) {
    report(cause)
    return undefined
  }
}

async function firstReply(
  parsed: Parsed,
  { view }: Run,
  hook: 'onRequest' | 'onLookup',
  services: CustomServices,
): Promise<Completion | undefined> {
  for (const plugin of services.plugins) {
    const completion = await callHook(
      {
        plugin,
        hook,
        call: () => (hook === 'onRequest' ? plugin.onRequest?.(view) : plugin.onLookup?.(view, viewOf(parsed.prompt))),
        check: (reply: PluginReply) => completionOf(reply, parsed),
      },
      parsed,
      services,
    )
    if (completion !== undefined) return completion
  }
  return undefined
}

const REPLY_TYPES: ReadonlySet<string> = new Set(['text', 'thinking', 'tool-call'])

function completionOf({ content, finish }: PluginReply, { prompt, resolved }: Parsed): Completion {
  if (prompt.operation !== undefined) throw new Error('A plugin cannot reply to a compaction.')
  const parts = typeof content === 'string' ? [{ type: 'text', text: content } as const] : content
  checkParts(parts, 'content')
  const wrong = parts.find(({ type }) => !REPLY_TYPES.has(type))
  if (wrong !== undefined) throw new Error(`content: a reply cannot contain a part of the type ${wrong.type}.`)
  if (finish !== undefined && !FINISH_REASONS.has(finish)) throw new Error('finish: expected a finish reason.')
  const hasCall = parts.some(({ type }) => type === 'tool-call')
  return {
    id: '',
    model: resolved.routes[0].model.id,
    parts: parts.map(withoutNative),
    finish: finish ?? (hasCall ? 'tool-call' : 'stop'),
    usage: NO_USAGE,
  }
}

function withoutNative(part: Part): Part {
  if (part.type === 'opaque') return part
  const { native: _native, ...portable } = part
  return portable
}

/** A reply costs nothing, so the reservation is released. */
function replyPlan({ margin }: Parsed, response: Completion): ReplayPlan {
  const bill: Bill = {
    originalTokens: 0,
    optimizedTokens: 0,
    completionTokens: 0,
    theoretical: ZERO,
    actual: ZERO,
    billed: ZERO,
    margin,
    cache: 'MISS',
    strategy: 'Answered by a plugin',
    isEstimated: false,
  }
  return { kind: 'replay', response, bill }
}

/** A plugin sees one choice only, and not the copy of a response that the vendor stores. */
function checkChangeable(prompt: Prompt): void {
  if ((prompt.settings.choices ?? 1) > 1) {
    throw new GatewayError(
      'invalid-request',
      'n: this gateway checks or changes responses and supports one choice only. Remove n, or send several requests.',
      { param: 'n' },
    )
  }
  if (!isBackground(prompt)) return
  throw new GatewayError(
    'invalid-request',
    'background: this gateway checks or changes responses and cannot run them in the background. Remove background.',
    { param: 'background' },
  )
}

function runOf(exchange: Exchange, services: HookServices, model?: string): Run {
  if (exchange.plugins instanceof Run) return exchange.plugins
  const run = new Run(exchange, services, model)
  exchange.plugins = run
  return run
}

/** The plugins on one request. */
class Run implements PluginRun {
  readonly receivedPrompt: Prompt | undefined
  changesResponse: boolean
  hasTransformedPrompt = false
  completion?: Completion
  readonly #exchange: Exchange
  readonly #services: HookServices
  readonly #model: string | undefined
  readonly #attempts: ((result: Pick<AttemptResult, 'failure'>) => void)[] = []
  #attemptCount = 0
  #view: PluginExchange | undefined

  constructor(exchange: Exchange, services: HookServices, model: string | undefined) {
    this.#exchange = exchange
    this.#services = services
    this.#model = model
    this.receivedPrompt = exchange.prompt
    this.changesResponse = services.plugins.some((plugin) => plugin.transformResponse !== undefined) === true
  }

  get view(): PluginExchange {
    return (this.#view ??= new ExchangeView(this.#exchange, this.receivedPrompt, this.#model))
  }

  get endedView(): EndedExchange {
    return this.view
  }

  createWriter(writer: StreamWriter): StreamWriter {
    return this.changesResponse ? new TransformingWriter(writer, () => this.createChain()) : writer
  }

  /** Each attempt to stream has transformers of its own. */
  createChain(): TransformerChain {
    const { plugins, log, runtime } = this.#services
    const onFailure = (plugin: Plugin, cause: unknown): GatewayError | undefined => {
      const failure = failureOf({ plugin, hook: 'transformResponse', cause })
      if (failure === undefined) reportHookFailure({ plugin, hook: 'transformResponse', cause }, log, runtime)
      return failure
    }
    const failures: GatewayError[] = []
    const transformers = plugins.toReversed().flatMap((plugin) => {
      try {
        const transformer = plugin.transformResponse?.(this.view)
        return transformer === undefined ? [] : [{ plugin, transformer: checkTransformer(transformer) }]
      } catch (cause) {
        const failure = onFailure(plugin, cause)
        if (failure !== undefined) failures.push(failure)
        return []
      }
    })
    const transformerChain = new TransformerChain(transformers, onFailure)
    const [failure] = failures
    if (failure !== undefined) transformerChain.stop = { failure }
    return transformerChain
  }

  observeAttempts(attempts: Attempts): Attempts {
    const hasObserver = this.#services.plugins.some((plugin) => plugin.onAttempt !== undefined) === true
    if (!hasObserver) return attempts
    return new ObservedAttempts(attempts, this.#exchange, (route) => this.#beginAttempt(route))
  }

  #beginAttempt({ provider, model }: Route): (failure: unknown) => void {
    const { plugins, runtime } = this.#services
    const startedAt = runtime.now()
    const attempt = { number: ++this.#attemptCount, provider: provider.name, model: model.id }
    let listeners = plugins.flatMap((plugin) => {
      const listener = observe(plugin, 'onAttempt', () => plugin.onAttempt?.(this.view, attempt), this.#services)
      return typeof listener === 'function' ? [{ plugin, listener }] : []
    })
    const finish = (result: Pick<AttemptResult, 'failure'>): void => {
      const finished = listeners
      listeners = []
      for (const { plugin, listener } of finished) {
        const report = { ...result, durationMs: runtime.now() - startedAt }
        observe(plugin, 'onAttempt', () => listener(report), this.#services)
      }
    }
    this.#attempts.push(finish)
    return (error) => finish({ failure: failureViewOf(error) })
  }

  /** Reports the attempts that have not failed by themselves. */
  endAttempts({ failure }: PluginOutcome): void {
    const result = failure === undefined ? {} : { failure }
    for (const finish of this.#attempts.splice(0)) finish(result)
  }
}

function checkTransformer(transformer: ResponseTransformer): ResponseTransformer {
  const methods = [transformer.write, transformer.end].filter((method) => method !== undefined)
  if (methods.length > 0 && methods.every((method) => typeof method === 'function')) return transformer
  throw new Error('transformResponse: expected an object with the methods write or end, not a promise.')
}

function failureViewOf(error: unknown): NonNullable<AttemptResult['failure']> {
  const { kind, message } = GatewayError.is(error) ? error : canceledError(error)
  return { kind, message }
}

/** Records the calls in the attempts of the plan, on which the bill is based. */
class ObservedAttempts extends Attempts {
  readonly #attempts: Attempts
  readonly #onBegin: (route: Route) => (failure: unknown) => void

  constructor(attempts: Attempts, { cancellation }: Exchange, onBegin: (route: Route) => (failure: unknown) => void) {
    super(cancellation)
    this.#attempts = attempts
    this.#onBegin = onBegin
  }

  override begin(route: Route): AttemptRecord {
    const record = this.#attempts.begin(route)
    const onFailure = this.#onBegin(route)
    const recordFailure = record.recordFailure.bind(record)
    record.recordFailure = (error) => {
      recordFailure(error)
      onFailure(error)
    }
    return record
  }
}

const ENDPOINTS: readonly (readonly [RegExp, PluginEndpoint])[] = [
  [/\/chat\/completions$/, 'chat'],
  [/\/messages$/, 'messages'],
  [/\/responses$/, 'responses'],
  [/\/responses\/compact$/, 'compact'],
  [/\/embeddings$/, 'embeddings'],
  [/\/(?:count_tokens|input_tokens)$/, 'count'],
]
const SECRET_HEADERS: ReadonlySet<string> = new Set([
  'authorization',
  'proxy-authorization',
  'x-api-key',
  'x-bf-vk',
  'cookie',
])

class ExchangeView implements PluginExchange {
  readonly prompt: PluginPrompt | undefined
  readonly #exchange: Exchange
  readonly #model: string | undefined
  #headers: Readonly<Record<string, string>> | undefined

  constructor(exchange: Exchange, prompt: Prompt | undefined, model: string | undefined) {
    this.#exchange = exchange
    this.#model = model
    this.prompt = prompt && viewOf(prompt)
  }

  get id(): string {
    return this.#exchange.id
  }

  get endpoint(): PluginEndpoint {
    const path = this.#exchange.request.path.replace(/\/$/, '')
    return ENDPOINTS.find(([pattern]) => pattern.test(path))?.[1] ?? 'passthrough'
  }

  get isConnected(): boolean {
    return this.#exchange.hasClient
  }

  get startedAt(): number {
    return this.#exchange.startedAt
  }

  get keyId(): string {
    return this.#exchange.key?.id ?? ''
  }

  get keyName(): string {
    return this.#exchange.key?.name ?? ''
  }

  get context(): CallerContext {
    return this.#exchange.caller?.context ?? {}
  }

  get model(): string | undefined {
    return this.prompt?.model ?? this.#model
  }

  get headers(): Readonly<Record<string, string>> {
    return (this.#headers ??= headersOf(this.#exchange.request))
  }

  get signal(): AbortSignal {
    return this.#exchange.cancellation.signal
  }
}

function headersOf(request: Pick<HttpRequest, 'header' | 'headerNames'>): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {}
  for (const name of request.headerNames()) {
    const lowercase = name.toLowerCase()
    const value = SECRET_HEADERS.has(lowercase) ? undefined : request.header(lowercase)
    if (value !== undefined) headers[lowercase] = value
  }
  return Object.freeze(headers)
}

function viewOf({ model, messages, tools, settings, stream }: Prompt): PluginPrompt {
  return Object.freeze({ model, messages: freezeMessages(messages), tools, settings, stream })
}

/** An assignment to a received part would be lost, because its native form is sent. */
function freezeMessages(messages: readonly Message[]): readonly Message[] {
  if (Object.isFrozen(messages)) return messages
  for (const message of messages) {
    freezeParts(message.parts)
    Object.freeze(message)
  }
  return Object.freeze(messages)
}

function freezeParts(parts: readonly Part[]): void {
  for (const part of parts) {
    if (part.type === 'tool-result') freezeParts(part.content)
    Object.freeze(part)
  }
  Object.freeze(parts)
}

function outcomeOf(exchange: Exchange, outcome: RequestOutcome): PluginOutcome {
  const { status, failure, bill, completion } = outcome
  const { finished, storeMs } = exchange
  return {
    status,
    ...(failure !== undefined && { failure: failureViewOf(failure) }),
    ...(bill !== undefined && {
      bill: {
        theoretical: bill.theoretical,
        actual: bill.actual,
        billed: bill.billed,
        margin: bill.margin,
        strategy: bill.strategy,
        originalTokens: bill.originalTokens,
        sentTokens: bill.optimizedTokens,
        completionTokens: bill.completionTokens,
      },
    }),
    get usage() {
      return completion?.().usage
    },
    tier: finished?.tier,
    isCacheHit: bill?.cache === 'HIT',
    durationMs: finished?.latencyMs ?? 0,
    storeMs,
  }
}
