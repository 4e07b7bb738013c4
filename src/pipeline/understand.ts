import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import type { Prompt, Settings } from '../core/prompt.ts'
import { parseBodyInTurns, type ParsedBody } from '../formats/parse-body.ts'
import { checkPromptLength } from '../formats/prompt-length.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import { checkAccess } from '../governance/access.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { readBody } from '../http/body.ts'
import { utf8Length } from '../tokens/bound.ts'
import { breathe } from '../tokens/breathe.ts'
import { answeringRoutes } from './kind.ts'
import { checkVendorWork, measure } from './measure.ts'
import { readSteering } from './read-steering.ts'
import type { Route } from './route.ts'
import type { Admitted, Limits, Parts, Resolved, Understood } from './stages.ts'

/** Estimating the tokens of a longer body in one piece would block the event loop for more than a few milliseconds. */
const LONG_PROMPT = 128 * 1024

/** What the request asks for, of which model, and how large it is: 400, 403, 404 or 413. */
export async function understand(admitted: Admitted, parts: Parts): Promise<Understood> {
  const { limits } = parts
  const wishes = readSteering(admitted.request.headers, { canExplain: true })
  const { body, text, modelSpan, bytes } = await readJson(admitted, parts)
  const whole = await parts.turns.recall(admitted.format, admitted.key, body)
  const { format } = admitted
  const read = whole === body ? format.readPrompt(body, text, modelSpan) : format.readPrompt(whole)
  checkPromptLength(read, limits.promptBytes)
  checkTemperature(read.settings, admitted, limits.maxTemperature)
  const named = parts.resolve(read.model, admitted.key)
  checkAccess(admitted.key, { prompt: read, modelName: named.name, also: named.routes.map(routeName) })
  const resolved = answeringRoutes(named)
  checkThread(read, resolved)
  const prompt = withDefaults(read, resolved.routes[0].model)
  checkVendorWork(prompt, parts)
  const length = whole === body ? bytes : utf8Length(JSON.stringify(whole))
  if (length > LONG_PROMPT) await parts.meter.prepare(prompt, admitted.signal)
  return {
    ...admitted,
    asked: body,
    prompt,
    resolved,
    size: measure(prompt, length, admitted, parts),
    wishes,
    margin: marginOf(parts, admitted.key, resolved.name),
  }
}

/**
 * Reads the body of a request within the limits of the gateway.
 *
 * @param textBytes the limit of its text; embeddings are many texts, of which each has a context window of its own.
 */
export async function readJson(
  { request }: Admitted,
  { limits, runtime }: Parts,
  textBytes: number = limits.promptBytes,
): Promise<ParsedBody> {
  const { bodyBytes: maxBytes, bodyReadMs: readMs } = limits
  const bytes = await readBody(request, { maxBytes, readMs, after: runtime.after })
  return parseBodyInTurns(bytes, { ...parseLimits(limits), textBytes }, breathe)
}

/** The limits of every JSON body. */
export function parseLimits(limits: Limits): ParseLimits {
  const { jsonDepth: depth, jsonKeys: keys, jsonNumbers: numbers, jsonSyntaxBytes: syntaxBytes } = limits
  return { depth, keys, numbers, syntaxBytes }
}

/** An operator's function may answer anything; a bill that is no number would pass every budget. */
export function marginOf(parts: Parts, key: VirtualKey, modelName: string): number {
  const margin = parts.margin(key, modelName)
  if (Number.isFinite(margin) && margin >= 0) return margin
  throw new GatewayError('internal', 'The margin of this gateway is not a number of 0 or more. Tell its operator.')
}

/** The whole name of a route. */
export function routeName({ provider, model }: Route): string {
  return `${provider.name}/${model.id}`
}

/** The chat specification's own range; a message upstream checks its own. */
function checkTemperature(settings: Settings, admitted: Admitted, greatest: number): void {
  const { temperature } = settings
  if (temperature === undefined || admitted.format.dialect !== 'openai') return
  if (temperature > greatest) {
    throw new GatewayError(
      'invalid-request',
      `temperature is ${temperature}; expected a number from 0 to ${greatest}.`,
      {
        param: 'temperature',
      },
    )
  }
}

/** Threads are held by an upstream of the message format; elsewhere the official client falls back when told so. */
function checkThread(prompt: Prompt, resolved: Resolved): void {
  if (prompt.native.value['thread'] === undefined) return
  if (resolved.routes.every((route) => route.provider.dialect === prompt.native.dialect)) return
  const details: JsonObject = { error_code: 'thread_unsupported_request' }
  throw new GatewayError(
    'invalid-request',
    'Server-held threads are not possible with this model: send the whole conversation.',
    {
      param: 'thread',
      details,
    },
  )
}

/**
 * The defaults of a catalogue entry, where the caller set nothing. A model that refuses temperature together with
 * top_p is sent temperature alone, unless the caller chose top_p alone.
 */
function withDefaults(prompt: Prompt, model: Model): Prompt {
  const { settings } = prompt
  if (model.defaults === undefined && model.refusesBothSamplers !== true) return prompt
  const filled: Settings = { ...model.defaults, ...settings }
  const chosen = model.refusesBothSamplers === true ? oneSampler(filled, settings) : filled
  return { ...prompt, settings: chosen }
}

function oneSampler(filled: Settings, asked: Settings): Settings {
  if (filled.temperature === undefined || filled.topP === undefined) return filled
  const { temperature, topP, ...others } = filled
  return asked.temperature === undefined && asked.topP !== undefined ? { ...others, topP } : { ...others, temperature }
}
