import { billHeaders } from '../billing/headers.ts'
import { NO_USAGE, type Completion } from '../core/answer.ts'
import type { Embedded, EmbeddingRequest, Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { readEmbeddingRequest, writeEmbeddings } from '../formats/embeddings.ts'
import { checkAccess } from '../governance/access.ts'
import { windowOf } from '../tokens/bound.ts'
import { billFor } from './charge.ts'
import { baseHead, jsonResponse } from './head.ts'
import { embeddingRoutes } from './kind.ts'
import { measure } from './measure.ts'
import { readSteering } from './read-steering.ts'
import { settle } from './settle.ts'
import type { Route } from './route.ts'
import type { Admitted, Answered, Counter, Parts, Planned, Size, Understood } from './stages.ts'
import { marginOf, readJson, routeName } from './understand.ts'

/** An embeddings request in the terms of every other request, so that the same stages govern and bill it. */
export interface UnderstoodEmbedding extends Understood {
  readonly embedding: EmbeddingRequest
}

/** The vectors, and the request as if it had been answered without a word. */
export interface EmbeddedRequest extends Answered {
  readonly embedded: Embedded
  readonly completion: Completion
}

/** What shall be embedded, by which model, and how much it is: 400, 403, 404 or 413. */
export async function understandEmbedding(admitted: Admitted, parts: Parts): Promise<UnderstoodEmbedding> {
  const wishes = readSteering(admitted.request.headers, { canExplain: false })
  const { body, bytes } = await readJson(admitted, parts, Number.POSITIVE_INFINITY)
  const embedding = readEmbeddingRequest(body)
  const prompt = promptOf(embedding)
  await parts.meter.prepare(prompt, admitted.signal)
  const named = parts.resolve(embedding.model, admitted.key)
  checkAccess(admitted.key, { prompt, modelName: named.name, also: named.routes.map(routeName) })
  const resolved = embeddingRoutes(named)
  return {
    ...admitted,
    asked: body,
    prompt,
    resolved,
    size: measureInputs(embedding, prompt, measure(prompt, bytes, admitted, parts), parts.meter),
    wishes,
    margin: marginOf(parts, admitted.key, resolved.name),
    embedding,
  }
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
    ...of,
    get estimate() {
      return given + meter.estimateOf(prompt)
    },
    bound,
    reserved: boundFor,
    reportable: boundFor,
    count: async () => (await of.count()) + frame,
    counter: (route) => withFrame(of.counter(route), frame),
  }
}

function withFrame(counter: Counter | undefined, frame: number): Counter | undefined {
  if (counter === undefined) return undefined
  const { count, asksUpstream } = counter
  return { count: async () => addTo(await count(), frame), asksUpstream }
}

function addTo(counted: number | undefined, frame: number): number | undefined {
  return counted === undefined ? undefined : counted + frame
}

/** Gets the vectors, with the same retries and fallbacks as an answer: 502 503 504. */
export async function embed(planned: Planned, request: EmbeddingRequest, parts: Parts): Promise<EmbeddedRequest> {
  const { resolved, plan, signal, key, startedAt } = planned
  const routes = plan.kind === 'ask' ? plan.tries.watch(resolved.routes) : resolved.routes
  const call = { request, headers: {}, signal, keyId: key.id, startedAt }
  const { answer, route } = await parts.upstream.embed(routes, call)
  const completion: Completion = {
    id: planned.id,
    model: answer.model,
    parts: [],
    finish: 'stop',
    ...(answer.inputTokens === undefined ? {} : { usage: { ...NO_USAGE, inputTokens: answer.inputTokens } }),
  }
  return {
    ...planned,
    answer: { kind: 'whole', completion },
    route,
    ignored: [],
    embedded: answer,
    completion,
  }
}

/** The vectors in the encoding that was asked for, with the bill in the headers. */
export async function respondEmbedding(
  answered: EmbeddedRequest,
  request: EmbeddingRequest,
  parts: Parts,
): Promise<Response> {
  const { completion, embedded, first, reservation } = answered
  const bill = billFor(answered, completion, parts.meter)
  const body = JSON.stringify(writeEmbeddings(embedded, request.encoding, bill.optimizedTokens))
  const head = billHeaders(bill)
  await settle(answered, bill, { status: 200, completion }, parts)
  await first?.remember({ status: 200, head: { ...head, 'content-type': 'application/json' }, body })
  return jsonResponse(200, { ...baseHead(answered.id, reservation.rate), ...head }, body)
}
