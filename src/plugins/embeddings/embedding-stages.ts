import type { Completion } from '../../core/answer.ts'
import { NO_USAGE } from '../../core/money.ts'
import type { MaybePromise } from '../../core/async.ts'
import type { EmbeddingRequest, EmbeddingResult, Meter, Route } from '../../core/ports.ts'
import { GatewayError } from '../../core/errors.ts'
import { textOfMessage } from '../../core/messages.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import { readEmbeddingRequest, writeEmbeddings } from '../../formats/embeddings.ts'
import type { ParsedBody } from '../../formats/parse-body.ts'
import { fieldCostsOf } from '../../formats/prompt-checks.ts'
import { checkAccess } from '../../governance/virtual-key.ts'
import type { PromptChange } from '../../kernel/plugin.ts'
import { upstreamWindowOf, utf8Length } from '../../tokens/estimate.ts'
import { embeddingRoutes, routeName } from '../../kernel/resolve-model.ts'
import { billFor } from '../../kernel/charge.ts'
import type { Authenticated, Exchange, Parsed, Planned, Reserved, Size, TokenCounter } from '../../kernel/exchange.ts'
import { PromptSize } from '../../kernel/measure.ts'
import { marginOf, readJson, readSteering } from '../../kernel/parse-request.ts'
import { planUnchanged } from '../../kernel/plan.ts'
import { settle } from '../../kernel/settle.ts'
import { deduplicate, Stages } from '../../kernel/run.ts'
import type { Services } from '../../kernel/services.ts'
import { authenticate } from '../../kernel/authenticate.ts'
import { reserve } from '../../kernel/reserve.ts'
import { answerHeaders, baseHeaders, sendJson } from '../../kernel/response-headers.ts'

type WithEmbedding<T> = T & { readonly embedding: EmbeddingRequest }

function parseEmbedding(authenticated: Authenticated, services: Services): MaybePromise<WithEmbedding<Parsed>> {
  authenticated.steering = readSteering(authenticated.request, { canExplain: false })
  // The text size is not limited, because each input has its own context window.
  const limits = { ...services.bodyLimits.json, textBytes: Infinity }
  const read = async ({ body, maxSerializedBytes: bytes, received }: ParsedBody): Promise<WithEmbedding<Parsed>> => {
    const { key } = authenticated
    const embedding = readEmbeddingRequest(body, received)
    const prompt = promptOf(embedding)
    await services.meter.prepare(prompt, authenticated.cancellation.signal)
    const candidates = services.resolve(embedding.model, key)
    checkAccess(key, { prompt, modelName: candidates.name, routeNames: candidates.routes.map(routeName) })
    const resolved = embeddingRoutes(candidates)
    authenticated.requestBody = body
    authenticated.prompt = prompt
    authenticated.resolved = resolved
    const { input: _input, encoding_format: _encoding, dimensions: _dimensions, ...others } = body
    const costs = await fieldCostsOf({ native: { ...prompt.native, value: others } })
    const size = new PromptSize({ prompt, bytes, costs }, authenticated, services)
    await size.checkFields(resolved)
    authenticated.size = measureInputs(embedding, prompt, size, services.meter)
    authenticated.margin = marginOf(services, key, resolved.name, resolved.routes[0])
    authenticated.embedding = embedding
    return authenticated as WithEmbedding<Parsed>
  }
  return readJson(authenticated, services, read, limits)
}

function promptOf({ native, model, inputs }: EmbeddingRequest): Prompt {
  const texts = inputs.filter((input) => typeof input === 'string')
  return {
    native: { dialect: 'openai', value: native },
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
    prepare: () => undefined,
    mayContainLargeMedia: size.mayContainLargeMedia,
    bound,
    needsEstimate: () => false,
    tokensToReserve: boundFor,
    billedCacheWrites: () => undefined,
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

async function respondWithVectors(reserved: Reserved, services: Services): Promise<undefined> {
  const { embedding } = reserved
  const planned = planUnchanged(reserved)
  if (embedding === undefined || planned.plan.kind !== 'upstream') return undefined
  const { key, startedAt, cancellation, resolved } = planned
  const attempts = planned.plugins?.observeAttempts(planned.plan.attempts) ?? planned.plan.attempts
  const call = { request: embedding, headers: {}, cancellation, keyId: key.id, startedAt, attempts }
  const { answer, route } = await services.upstream.embed(resolved.routes, call)
  planned.route = route
  return sendVectors(planned, embedding, answer, services)
}

async function sendVectors(
  planned: Planned,
  request: EmbeddingRequest,
  result: EmbeddingResult,
  services: Services,
): Promise<undefined> {
  const completion = completionOf(planned.id, result)
  const answered = Object.assign(planned, { answer: { kind: 'whole', completion } as const })
  const bill = billFor(answered, { usage: completion.usage, completion: () => completion }, services.meter)
  const body = JSON.stringify(writeEmbeddings(result, request.encoding, bill.optimizedTokens))
  const headers = answerHeaders(bill, [], services)
  await settle(answered, { status: 200, bill, completion: () => completion }, services)
  await planned.idempotencyClaim?.remember({
    status: 200,
    head: { ...headers, 'content-type': 'application/json' },
    body,
  })
  sendJson(planned.sink, 200, { ...baseHeaders(planned.id, planned.reservation.rate), ...headers }, body)
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

/** Runs the plugins. Their transformed texts replace the inputs one by one. */
async function runPlugins(
  parsed: WithEmbedding<Parsed>,
  services: Services,
): Promise<WithEmbedding<Parsed> | undefined> {
  const { plugins } = services
  if (plugins === undefined) return parsed
  const { embedding } = parsed
  const hooks = await import('../custom/plugin-hooks.ts')
  await hooks.checkRequest(parsed, services)
  if (plugins.every(({ transformPrompt }) => transformPrompt === undefined)) return parsed
  if (embedding.inputs.some((input) => typeof input !== 'string')) throw tokenInputError()
  const messages = await hooks.transformMessages(parsed, services, (change) => readTexts(change, embedding))
  const inputs = messages.map(textOfMessage)
  const { received: _received, ...others } = embedding
  const changed = { ...others, inputs, native: { ...embedding.native, input: inputs } }
  const prompt = promptOf(changed)
  await services.meter.prepare(prompt, parsed.cancellation.signal)
  const size = new PromptSize({ prompt, bytes: utf8Length(JSON.stringify(changed.native)) }, parsed, services)
  return Object.assign(parsed, {
    embedding: changed,
    prompt,
    size: measureInputs(changed, prompt, size, services.meter),
  })
}

function readTexts({ messages }: PromptChange, { inputs }: EmbeddingRequest): readonly Message[] {
  const isText = ({ parts }: Message): boolean =>
    parts.length === 1 && parts[0]?.type === 'text' && parts[0].text !== ''
  if (messages.length === inputs.length && messages.every(isText)) return messages
  throw new Error(`messages: expected ${inputs.length} messages, each with one text part that is not empty.`)
}

function tokenInputError(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'input: this gateway reads the inputs of embeddings, and cannot read tokens. Send strings.',
    { param: 'input' },
  )
}

export const embeddingStages: Stages<Exchange> = Stages.begin(authenticate)
  .next(parseEmbedding)
  .next(runPlugins)
  .next(deduplicate)
  .next(reserve)
  .next(respondWithVectors)
