import type { Completion } from '../../core/completion.ts'
import { NO_USAGE } from '../../core/money.ts'
import type { MaybePromise } from '../../core/async.ts'
import type { EmbeddingRequest, EmbeddingResult, Meter, Route } from '../../core/ports.ts'
import { GatewayError } from '../../core/errors.ts'
import { textOfMessage } from '../../core/messages.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import { readEmbeddingRequest, writeEmbeddings } from '../../formats/embeddings.ts'
import type { ParsedBody } from '../../formats/parse-body.ts'
import { fieldCostsOf } from '../../formats/prompt-checks.ts'
import { checkAccess } from '../../governance/access.ts'
import type { PromptChange } from '../../kernel/plugin.ts'
import { upstreamWindowOf, utf8Length } from '../../tokens/estimate.ts'
import { routeName, restrictTo } from '../../kernel/resolve-model.ts'
import { billFor } from '../../kernel/charge.ts'
import type { Authenticated, Exchange, Parsed, Planned, Reserved, ResolvedModel } from '../../kernel/exchange.ts'
import { PromptSize, type Size, type TokenCounter } from '../../kernel/measure.ts'
import { checkHeaders, marginOf, type ParsedParts, readJson } from '../../kernel/parse-request.ts'
import { planUnchanged } from '../../kernel/plan.ts'
import { keepResponse } from '../../kernel/respond.ts'
import { settle } from '../../kernel/settle.ts'
import { trackRequests } from '../../kernel/request-tracker.ts'
import { createExchange, Stages } from '../../kernel/run.ts'
import type { Endpoint } from '../../http/router.ts'
import type { Handler } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'
import { authenticate } from '../../kernel/authenticate.ts'
import { reserve } from '../../kernel/reserve.ts'
import { responseHeaders, baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { chatClient } from '../../formats/chat/client.ts'

interface Embedding {
  readonly embedding: EmbeddingRequest
}

type ParsedEmbedding = Parsed & Embedding

function parseEmbedding(authenticated: Authenticated, services: Services): MaybePromise<ParsedParts & Embedding> {
  checkHeaders(authenticated, { canExplain: false }, services)
  // The text size is not limited, because each input has its own context window.
  const limits = { ...services.bodyLimits.json, textBytes: Infinity }
  const read = async ({ body, maxSerializedBytes: bytes, received }: ParsedBody): Promise<ParsedParts & Embedding> => {
    const { key, caller } = authenticated
    const embedding = readEmbeddingRequest(body, received)
    const prompt = promptOf(embedding)
    await services.meter.cacheEstimates(prompt, authenticated.cancellation.signal)
    const candidates = services.resolve(embedding.model, key)
    const routeNames = candidates.routes.map(routeName)
    checkAccess(key, { modelName: candidates.name, routeNames, fields: body, maxTokens: undefined })
    const resolved = embeddingRoutes(candidates)
    const { input: _input, encoding_format: _encoding, dimensions: _dimensions, ...others } = body
    const costs = await fieldCostsOf({ native: { ...prompt.native, value: others } })
    const size = new PromptSize({ prompt, bytes, costs }, authenticated, services)
    await size.checkFields(resolved)
    const margin = marginOf(services, caller, resolved.name, resolved.routes[0])
    const inputSize = measureInputs(embedding, prompt, size, services.meter)
    return { requestBody: body, prompt, resolved, size: inputSize, margin, embedding }
  }
  return readJson(authenticated, services, read, limits)
}

function promptOf({ native, model, inputs }: EmbeddingRequest): Prompt {
  const texts = inputs.filter((input) => typeof input === 'string')
  return {
    native: { dialect: 'chat', value: native },
    model,
    messages: texts.map((text) => ({ role: 'user', parts: [{ type: 'text', text }] })),
    settings: { maxTokens: 0 },
    tools: [],
    stream: false,
  }
}

/** Allowance for the tokens that a vendor adds to each input. */
const INPUT_OVERHEAD_TOKENS = 8

function measureInputs({ inputs }: EmbeddingRequest, prompt: Prompt, size: Size, meter: Meter): Size {
  const inputTokens = inputs.reduce((sum, input) => sum + (typeof input === 'string' ? 0 : input.length), 0)
  const overhead = inputs.length * INPUT_OVERHEAD_TOKENS
  const bound = size.bound + overhead
  const boundFor = ({ model }: Route): number => Math.min(bound, upstreamWindowOf(model) * inputs.length + overhead)
  return {
    get estimate() {
      return inputTokens + meter.estimatePrompt(prompt)
    },
    // `parseEmbedding` has already estimated the texts.
    prepareEstimate: () => undefined,
    mayContainLargeMedia: size.mayContainLargeMedia,
    bound,
    needsEstimate: () => false,
    tokensToReserve: boundFor,
    billedCacheWrites: () => undefined,
    fields: size.fields,
    maxReportableTokens: boundFor,
    outputs: 1,
    extraOutputTokens: () => 0,
    count: async () => (await size.count()) + overhead,
    counterFor: (route) => withOverhead(size.counterFor(route), overhead),
  }
}

function withOverhead(counter: TokenCounter | undefined, overhead: number): TokenCounter | undefined {
  if (counter === undefined) return undefined
  const { count, callsUpstream } = counter
  const countAll = async (): Promise<number | undefined> => {
    const tokens = await count()
    return tokens === undefined ? undefined : tokens + overhead
  }
  return { count: countAll, callsUpstream }
}

async function respondWithVectors(reserved: Reserved & Embedding, services: Services): Promise<undefined> {
  const { embedding, caller, startedAt, cancellation, resolved, plugins } = reserved
  const plan = planUnchanged(reserved)
  const planned = Object.assign(reserved, { plan })
  const attempts = plugins?.observeAttempts(plan.attempts) ?? plan.attempts
  const call = {
    request: embedding,
    headers: {},
    cancellation,
    scope: caller.scope,
    caller: caller.upstream,
    startedAt,
    attempts,
  }
  const { response, route } = await services.upstream.embed(resolved.routes, call)
  planned.route = route
  return sendVectors(planned, embedding, response, services)
}

async function sendVectors(
  planned: Planned,
  request: EmbeddingRequest,
  result: EmbeddingResult,
  services: Services,
): Promise<undefined> {
  const completion = completionOf(planned.id, result)
  const responded = Object.assign(planned, { response: { kind: 'whole', completion } as const })
  const bill = billFor(responded, { usage: completion.usage, completion: () => completion }, services.meter)
  const body = JSON.stringify(writeEmbeddings(result, request.encoding, bill.optimizedTokens))
  const headers = responseHeaders(bill, [], services)
  await settle(responded, { status: 200, bill, completion: () => completion }, services)
  await keepResponse(responded, { headers, body, id: completion.id }, services)
  sendJson(planned.sink, 200, { ...baseHeaders(planned.id, planned.grant.rate), ...headers }, body)
  return undefined
}

function completionOf(id: string, { model, inputTokens }: EmbeddingResult): Completion {
  return {
    id,
    model,
    parts: [],
    finish: 'stop',
    ...(inputTokens === undefined ? {} : { usage: { ...NO_USAGE, inputTokens } }),
  }
}

/** The texts that plugins return replace the inputs one by one. */
async function runPlugins(parsed: ParsedEmbedding, services: Services): Promise<Partial<ParsedEmbedding>> {
  const { hooks } = services
  for (const check of hooks.checkRequest) await check(parsed, services)
  const { embedding } = parsed
  const inputs = {
    checkReadable: () => checkReadable(embedding),
    read: (change: PromptChange) => readTexts(change, embedding),
  }
  let changed: Partial<ParsedEmbedding> = {}
  for (const changeInputs of hooks.changeInputs) {
    const messages = await changeInputs(parsed, inputs, services)
    if (messages !== undefined) changed = await withTexts(parsed, messages.map(textOfMessage), services)
  }
  return changed
}

async function withTexts(
  parsed: ParsedEmbedding,
  inputs: readonly string[],
  services: Services,
): Promise<Pick<ParsedEmbedding, 'embedding' | 'prompt' | 'size'>> {
  const { received: _received, ...others } = parsed.embedding
  const embedding = { ...others, inputs, native: { ...others.native, input: inputs } }
  const prompt = promptOf(embedding)
  await services.meter.cacheEstimates(prompt, parsed.cancellation.signal)
  const size = new PromptSize({ prompt, bytes: utf8Length(JSON.stringify(embedding.native)) }, parsed, services)
  return { embedding, prompt, size: measureInputs(embedding, prompt, size, services.meter) }
}

function readTexts({ messages }: PromptChange, { inputs }: EmbeddingRequest): readonly Message[] {
  const isText = ({ parts }: Message): boolean =>
    parts.length === 1 && parts[0]?.type === 'text' && parts[0].text !== ''
  if (messages.length === inputs.length && messages.every(isText)) return messages
  throw new Error(`messages: expected ${inputs.length} messages, each with one text part that is not empty.`)
}

function checkReadable({ inputs }: EmbeddingRequest): void {
  if (inputs.every((input) => typeof input === 'string')) return
  throw new GatewayError(
    'invalid-request',
    'input: this gateway reads the inputs of embeddings, and cannot read tokens. Send strings.',
    { param: 'input' },
  )
}

function embeddingStages({ hooks }: Pick<Services, 'hooks'>): Stages<Exchange> {
  return Stages.begin(authenticate)
    .next(parseEmbedding)
    .next(runPlugins)
    .check(hooks.deduplicate)
    .next(reserve)
    .next(respondWithVectors)
}

export function embeddingEndpoints(services: Services): readonly Endpoint<Handler>[] {
  const stages = embeddingStages(services)
  const handle: Handler = (call) => stages.run(createExchange(call, chatClient), services)
  return [{ method: 'POST', path: '/v1/embeddings', handle: trackRequests(services.requestTracker, handle) }]
}

function embeddingRoutes(resolved: ResolvedModel): ResolvedModel {
  return restrictTo(
    resolved,
    ({ model, provider }) => model.kind !== 'chat' && provider.embed !== undefined,
    CANNOT_EMBED,
  )
}

const CANNOT_EMBED = 'does not support embeddings. Choose an embedding model, such as openai/text-embedding-3-small'
