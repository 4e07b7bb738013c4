import { billHeaders } from '../billing/headers.ts'
import { NO_USAGE, type Completion } from '../core/answer.ts'
import { ZERO } from '../core/money.ts'
import type { Embedded, EmbeddingRequest, Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { readEmbeddingRequest, writeEmbeddings } from '../formats/embeddings.ts'
import { checkAccess } from '../governance/access.ts'
import { billFor } from './charge.ts'
import { baseHead, jsonResponse } from './head.ts'
import { embeddingRoutes } from './kind.ts'
import { readSteering } from './read-steering.ts'
import { KEEP_NOTHING } from './recall.ts'
import { settle } from './settle.ts'
import type { Admitted, Answered, Parts, Reserved, Resolved, Size, Understood } from './stages.ts'
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
  const { body } = await readJson(admitted, parts, Number.POSITIVE_INFINITY)
  const embedding = readEmbeddingRequest(body)
  const prompt = promptOf(embedding)
  const named = parts.resolve(embedding.model, admitted.key)
  checkAccess(admitted.key, { prompt, modelName: named.name, also: named.routes.map(routeName) })
  const resolved = embeddingRoutes(named)
  return {
    ...admitted,
    asked: body,
    prompt,
    resolved,
    size: measure(embedding, prompt, { resolved, meter: parts.meter }),
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

/** What is given as tokens needs no estimate. */
function measure(
  { inputs }: EmbeddingRequest,
  prompt: Prompt,
  { resolved, meter }: { readonly resolved: Resolved; readonly meter: Meter },
): Size {
  const given = inputs.reduce((sum, input) => sum + (typeof input === 'string' ? 0 : input.length), 0)
  const bounds = resolved.routes.map((route) => meter.boundOf(prompt, route.model))
  return { estimate: given + meter.estimateOf(prompt), bound: given + Math.max(...bounds) }
}

/** Gets the vectors, with the same retries and fallbacks as an answer: 502 503 504. */
export async function embed(reserved: Reserved, request: EmbeddingRequest, parts: Parts): Promise<EmbeddedRequest> {
  const { resolved, prompt, size, signal } = reserved
  const { answer, route } = await parts.upstream.embed(resolved.routes, { request, headers: {}, signal })
  const completion: Completion = {
    id: reserved.id,
    model: answer.model,
    parts: [],
    finish: 'stop',
    ...(answer.inputTokens === undefined ? {} : { usage: { ...NO_USAGE, inputTokens: answer.inputTokens } }),
  }
  const tokens = size.estimate
  const optimized = { tokens, spent: ZERO, verdicts: [] }
  return {
    ...reserved,
    plan: { kind: 'ask', prompt, optimized, counted: { original: tokens, sent: tokens }, keep: KEEP_NOTHING },
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
