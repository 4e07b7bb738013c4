import type { MaybePromise } from '../../core/async.ts'
import type { JsonObject } from '../../core/json.ts'
import type { ClientFormat } from '../../formats/format.ts'
import { oneRequest } from '../../governance/reservation.ts'
import type { Endpoint } from '../../http/router.ts'
import { authenticate } from '../../kernel/authenticate.ts'
import type { Handler } from '../../kernel/call.ts'
import type { Authenticated, Parsed } from '../../kernel/exchange.ts'
import { countByVendor } from '../../kernel/measure.ts'
import { checkHeaders, type ParsedParts, parsePrompt, readJson } from '../../kernel/parse-request.ts'
import { trackRequests } from '../../kernel/request-tracker.ts'
import { modelNames, reserveQuote } from '../../kernel/reserve.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { createExchange, Stages } from '../../kernel/run.ts'
import type { Services } from '../../kernel/services.ts'
import { endWithoutResponse } from '../../kernel/settle.ts'
import { messagesClient } from '../../formats/messages/client.ts'
import { responsesClient } from '../../formats/responses/client.ts'

interface CountEndpoint {
  readonly path: string
  readonly format: ClientFormat
  /** Fields that the format requires in a model request, but not in a count request. */
  readonly defaults: JsonObject
  readonly writeCount: (tokens: number) => JsonObject
}

const COUNT_ENDPOINTS: readonly CountEndpoint[] = [
  {
    path: '/v1/messages/count_tokens',
    format: messagesClient,
    defaults: { max_tokens: 1 },
    writeCount: (tokens) => ({ input_tokens: tokens }),
  },
  {
    path: '/v1/responses/input_tokens',
    format: responsesClient,
    defaults: { input: '' },
    writeCount: (tokens) => ({ object: 'response.input_tokens', input_tokens: tokens }),
  },
]

export function countEndpoints(services: Services): readonly Endpoint<Handler>[] {
  return COUNT_ENDPOINTS.map((endpoint) => ({
    method: 'POST',
    path: endpoint.path,
    handle: trackRequests(services.requestTracker, createCounter(endpoint, services)),
  }))
}

/** A token count is free, but it is subject to the request limits of the key. */
function createCounter({ format, defaults, writeCount }: CountEndpoint, services: Services): Handler {
  const parse = (authenticated: Authenticated): MaybePromise<ParsedParts> => {
    checkHeaders(authenticated, { canExplain: true }, services)
    return readJson(authenticated, services, ({ body, maxSerializedBytes }) =>
      parsePrompt(authenticated, { body: { ...defaults, ...body, stream: false }, maxSerializedBytes }, services),
    )
  }
  const respond = async (parsed: Parsed): Promise<undefined> => {
    const models = modelNames(parsed.resolved.name, parsed.resolved.routes)
    const { grant } = Object.assign(parsed, await reserveQuote(parsed, oneRequest({ models }), services))
    const { checkRequest, changePrompt } = services.hooks
    for (const check of checkRequest) await check(parsed, services)
    for (const change of changePrompt) await change(parsed, services)
    const { prompt, resolved, cancellation } = parsed
    const vendorCount = await countByVendor(prompt, resolved.routes[0], parsed, services)
    const tokens = vendorCount ?? (await services.meter.countPrompt(prompt, cancellation.signal))
    await endWithoutResponse(parsed, { status: 200 }, services)
    const headers = baseHeaders(parsed.id, grant.rate)
    if (vendorCount === undefined) headers['x-svc-estimated'] = 'true'
    sendJson(parsed.sink, 200, headers, JSON.stringify(writeCount(tokens)))
    return undefined
  }
  const stages = Stages.begin(authenticate).next(parse).next(respond)
  return (call) => stages.run(createExchange(call, format), services)
}
