import type { Completion } from '../core/completion.ts'
import { isPromise, lazy, type MaybePromise } from '../core/async.ts'
import type {
  EmbedCall,
  StoredResponseCall,
  PassthroughCall,
  Provider,
  ProviderCall,
  ProviderResponse,
  Model,
} from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { UPSTREAM_FORMATS } from '../formats/dialects.ts'
import type { UpstreamFormatModule, WrittenPrompt } from '../formats/format.ts'
import {
  readResponse,
  readJson,
  throwRejection,
  request,
  type RequestCall,
  type RequestOptions,
  type SignRequest,
  type EndpointUrl,
  type LoadedTarget,
  MAX_UNPAUSED_MESSAGES,
  write,
  urlFor,
} from './http-request.ts'

export interface HttpProviderOptions extends RequestOptions {
  readonly usesCallerKeys?: boolean | undefined
  readonly format: UpstreamFormatModule
  readonly models: readonly Model[]
  readonly model: (id: string) => Model | undefined
  readonly urls: {
    readonly create: EndpointUrl
    readonly embed?: EndpointUrl
    readonly count?: string
    readonly ping?: string
    readonly responses?: string
    readonly base?: string
  }
}

export function httpProvider(options: HttpProviderOptions): Provider {
  const { name, format, models, model, urls } = options
  const { headers, forwardedHeaders = [] } = options
  const { create, embed, count, ping, responses, base } = urls
  let loaded: LoadedTarget | undefined
  const load = async (): Promise<LoadedTarget> => (loaded ??= { ...options, format: await format.load(), create })
  const loadResponses = async (url: string, operation = ''): Promise<LoadedTarget> => {
    const responsesUpstream = await UPSTREAM_FORMATS.responses()
    return { ...options, format: responsesUpstream, create: operation === '' ? url : `${url}/${operation}` }
  }
  const targetFor = (prompt?: Prompt): MaybePromise<LoadedTarget> =>
    responses !== undefined && prompt?.native.dialect === 'responses'
      ? loadResponses(responses, prompt.operation)
      : (loaded ?? load())
  return {
    name,
    dialect: format.dialect,
    endsCalls: true,
    ...(options.usesCallerKeys === true && { usesCallerKeys: true }),
    varyHeaders: Object.fromEntries(forwardedHeaders.map((header) => [header, headers[header]])),
    models,
    model,
    complete: (call) => complete(targetFor(call.prompt), call),
    stream: async (call) => (await loadOtherCalls()).stream(await targetFor(call.prompt), call),
    ...(embed !== undefined && {
      embed: async (call: EmbedCall) => (await loadOtherCalls()).embedTexts(await targetFor(), call, embed),
    }),
    ...(count !== undefined && {
      countTokens: async (call: ProviderCall) =>
        (await loadOtherCalls()).countTokens(await targetFor(call.prompt), call, count),
    }),
    ...(responses !== undefined && {
      secondDialect: 'responses',
      storedResponse: async (call: StoredResponseCall) =>
        (await loadOtherCalls()).storedResponse(await targetFor(), call, responses),
    }),
    ...(base !== undefined && {
      passThrough: async (call: PassthroughCall) => (await loadOtherCalls()).passThrough(await targetFor(), call, base),
    }),
    ...(ping !== undefined && {
      ping: async (call: RequestCall) => (await loadOtherCalls()).checkAvailable(await targetFor(), call, ping),
    }),
  }
}

/** A gateway that streams nothing loads none of them. */
const loadOtherCalls = lazy(() => import('./other-calls.ts'))

function complete(
  target: MaybePromise<LoadedTarget>,
  call: ProviderCall,
  given?: WrittenPrompt,
): Promise<ProviderResponse<Completion>> {
  if (isPromise(target)) return target.then((loaded) => complete(loaded, call))
  const { format } = target
  try {
    if (given === undefined && call.prompt.messages.length > MAX_UNPAUSED_MESSAGES)
      return write(target, call).then((written) => complete(target, call, written))
    const { body, ignored } = given ?? format.writePrompt(call.prompt, call.model.id)
    const sent = request(target, call, { method: 'POST', url: urlFor(target.create, call), body })
    return sent.then((response) => {
      if (response.status >= 400) return throwRejection(target, call, response)
      const { text, value } = readJson(target, call, response)
      return { response: readResponse(target, () => format.readCompletion(value, text)), ignored }
    })
  } catch (error) {
    return Promise.reject(error)
  }
}

export const CHAT_FORMAT: UpstreamFormatModule = {
  dialect: 'chat',
  load: UPSTREAM_FORMATS.chat,
}

export const MESSAGES_FORMAT: UpstreamFormatModule = {
  dialect: 'messages',
  load: UPSTREAM_FORMATS.messages,
}

export const GEMINI_FORMAT: UpstreamFormatModule = {
  dialect: 'gemini',
  load: UPSTREAM_FORMATS.gemini,
}

const MIN_KEY_LENGTH = 4
/** Shorter values of configured headers, such as a version, are not redacted. */
const MIN_HEADER_VALUE_LENGTH = 8
const MAX_SIGNED_VALUES = 8

/** The longest secret comes first, because it may contain a shorter one. */
export function secretsIn(keys: readonly string[], headerValues: readonly string[]): readonly string[] {
  const secrets = [
    ...keys.filter(({ length }) => length >= MIN_KEY_LENGTH),
    ...headerValues.filter(({ length }) => length >= MIN_HEADER_VALUE_LENGTH),
  ]
  return secrets.toSorted((a, b) => b.length - a.length)
}

export function recordSignedValues(sign: SignRequest, values: string[]): SignRequest {
  return async (request, caller) => {
    const signed = await sign(request, caller)
    for (const [name, value] of Object.entries(signed.headers)) {
      if (value === request.headers[name]) continue
      const secret = withoutScheme(String(value))
      const index = values.indexOf(secret)
      if (index !== -1) values.splice(index, 1)
      values.unshift(secret)
    }
    values.splice(MAX_SIGNED_VALUES)
    return signed
  }
}

/** An upstream may echo only the token, so the scheme is removed. */
export function withoutScheme(value: string): string {
  return value.replace(/^(bearer|basic|token|(api-?)?key) +/i, '')
}
