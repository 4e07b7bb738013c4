import { type Completion, NO_USAGE } from '../core/answer.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import type { Embedded, EmbeddingRequest, Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { readEmbeddingRequest, writeEmbeddings } from '../formats/embeddings.ts'
import { checkAccess } from '../governance/access.ts'
import { billFor } from './charge.ts'
import type { Authenticated, Counter, Exchange, Parsed, Planned, Reserved, Route, Size } from './exchange.ts'
import { answerHeaders, baseHeaders, sendJson } from './response.ts'
import { embeddingRoutes } from './resolve.ts'
import { marginOf, readJson, readSteering, routeName } from './parse-request.ts'
import { untouched } from './plan.ts'
import { settle } from './settle.ts'
import { PromptSize } from './measure.ts'
import { windowOf } from '../tokens/bound.ts'
import type { Services } from './services.ts'
import { authenticate } from './authenticate.ts'
import { deduplicate } from './deduplicate.ts'
import { reserve } from './reserve.ts'
import { Stages } from './run.ts'

type WithEmbedding<exchange> = exchange & { readonly embedding: EmbeddingRequest }

/** Reads which texts to embed, by which model, and how much it is: 400, 403, 404 or 413. */
export function parseEmbedding(authenticated: Authenticated, services: Services): MaybePromise<WithEmbedding<Parsed>> {
  authenticated.steering = readSteering(authenticated.request, { canExplain: false })
  // Of the many texts each has a context window of its own.
  const limits = { ...services.bodyLimits.json, textBytes: Infinity }
  return chain(readJson(authenticated, services, limits), async ({ body, bytes, received }) => {
    const { key } = authenticated
    const embedding = readEmbeddingRequest(body, received)
    const prompt = promptOf(embedding)
    await services.meter.prepare(prompt, authenticated.cancellation.signal)
    const named = services.resolve(embedding.model, key)
    checkAccess(key, { prompt, modelName: named.name, otherNames: named.routes.map(routeName) })
    const resolved = embeddingRoutes(named)
    authenticated.requestBody = body
    authenticated.prompt = prompt
    authenticated.resolved = resolved
    authenticated.size = measureInputs(
      embedding,
      prompt,
      new PromptSize(prompt, bytes, { exchange: authenticated, services }),
      services.meter,
    )
    authenticated.margin = marginOf(services, key, resolved.name)
    authenticated.embedding = embedding
    return authenticated as WithEmbedding<Parsed>
  })
}

/** Each text is a message, and no answer is paid for. */
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

/** A vendor frames each input with a few tokens. */
const INPUT_TOKENS = 8

/** Each input has the model's window to itself. What is given as tokens needs no estimate. */
function measureInputs({ inputs }: EmbeddingRequest, prompt: Prompt, of: Size, meter: Meter): Size {
  const given = inputs.reduce((sum, input) => sum + (typeof input === 'string' ? 0 : input.length), 0)
  const frame = inputs.length * INPUT_TOKENS
  const bound = of.bound + frame
  const boundFor = ({ model }: Route): number => Math.min(bound, windowOf(model) * inputs.length + frame)
  return {
    get estimate() {
      return given + meter.estimateOf(prompt)
    },
    // The texts were estimated with pauses when they were read.
    prepare: () => undefined,
    mayHoldLongMedia: false,
    bound,
    needsEstimate: () => false,
    reserved: boundFor,
    reportable: boundFor,
    count: async () => (await of.count()) + frame,
    counter: (route) => withFrame(of.counter(route), frame),
  }
}

function withFrame(counter: Counter | undefined, frame: number): Counter | undefined {
  if (counter === undefined) return undefined
  const { count, callsUpstream } = counter
  return { count: async () => addTo(await count(), frame), callsUpstream }
}

function addTo(counted: number | undefined, frame: number): number | undefined {
  return counted === undefined ? undefined : counted + frame
}

/** Gets the vectors and sends them: the same retries, fallbacks and bill as for an answer. */
export async function respondWithVectors(reserved: Reserved, services: Services): Promise<undefined> {
  const { embedding } = reserved
  const planned = untouched(reserved)
  if (embedding === undefined || planned.plan.kind !== 'upstream') return undefined
  const { key, startedAt, cancellation, resolved } = planned
  const { attempts } = planned.plan
  const call = { request: embedding, headers: {}, cancellation, keyId: key.id, startedAt, attempts }
  const { answer, route } = await services.upstream.embed(resolved.routes, call)
  planned.route = route
  return send(planned, embedding, answer, services)
}

async function send(
  planned: Planned,
  request: EmbeddingRequest,
  embedded: Embedded,
  services: Services,
): Promise<undefined> {
  const completion = completionOf(planned.id, embedded)
  const answered = Object.assign(planned, { answer: { kind: 'whole', completion } as const })
  const bill = billFor(answered, { usage: completion.usage, completion: () => completion }, services.meter)
  const body = JSON.stringify(writeEmbeddings(embedded, request.encoding, bill.optimizedTokens))
  const headers = answerHeaders(bill, [])
  await settle(answered, { status: 200, bill, completion: () => completion }, services)
  await planned.first?.remember({ status: 200, head: { ...headers, 'content-type': 'application/json' }, body })
  sendJson(planned.sink, 200, { ...baseHeaders(planned.id, planned.reservation.rate), ...headers }, body)
  return undefined
}

/** The request as if it had been answered without a word. */
function completionOf(id: string, { model, inputTokens }: Embedded): Completion {
  return {
    id,
    model,
    parts: [],
    finish: 'stop',
    ...(inputTokens === undefined ? {} : { usage: { ...NO_USAGE, inputTokens } }),
  }
}

/** The stages of an embeddings request: those of `run.ts` without cache and tiers. */
export const embeddingStages: Stages<Exchange> = Stages.begin(authenticate) // the key: 401
  .next(parseEmbedding) //     texts, model, permissions: 400 403 404 413
  .next(deduplicate) //        Idempotency-Key: the same vectors again, 409
  .next(reserve) //            counters and worst-case cost: 402 429
  .next(respondWithVectors) // in the caller's encoding; settles once
