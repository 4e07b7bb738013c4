import type { MaybePromise } from '../../core/async.ts'
import type { JsonObject } from '../../core/json.ts'
import { ONE_REQUEST, type WaitForStore } from '../../governance/reservation.ts'
import { authenticate } from '../../kernel/authenticate.ts'
import { type Authenticated, type Exchange, type Parsed, waitForStore } from '../../kernel/exchange.ts'
import { countByVendor } from '../../kernel/measure.ts'
import { parsePrompt, readJson, readSteering } from '../../kernel/parse-request.ts'
import { release } from '../../kernel/settle.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { Stages } from '../../kernel/run.ts'
import type { Services } from '../../kernel/services.ts'

interface CountEndpoint {
  /** Fields that the format requires in a model request, but not in a count request. */
  readonly defaults: JsonObject
  readonly writeCount: (tokens: number) => JsonObject
}

/** A token count is free, but it is subject to the request limits of the key. */
function createCountStages({ defaults, writeCount }: CountEndpoint): Stages<Exchange> {
  const parse = (authenticated: Authenticated, services: Services): MaybePromise<Parsed> => {
    authenticated.steering = readSteering(authenticated.request, { canExplain: true })
    return readJson(authenticated, services, ({ body, maxSerializedBytes }) =>
      parsePrompt(authenticated, { body: { ...defaults, ...body, stream: false }, maxSerializedBytes }, services),
    )
  }
  const respond = async (parsed: Parsed, services: Services): Promise<undefined> => {
    const wait: WaitForStore = (pending) => waitForStore(parsed, pending, services)
    const reservation = await services.ledger.reserve(parsed.key, ONE_REQUEST, wait)
    parsed.reservation = reservation
    if (services.plugins !== undefined) {
      const hooks = await import('../custom/plugin-hooks.ts')
      await hooks.checkRequest(parsed, services)
      await hooks.transformPrompt(parsed, services)
    }
    const { prompt, resolved, cancellation } = parsed
    const vendorCount = await countByVendor(prompt, resolved.routes[0], parsed, services)
    const tokens = vendorCount ?? (await services.meter.countPrompt(prompt, cancellation.signal))
    await release(parsed, { status: 200 }, services)
    const headers = baseHeaders(parsed.id, reservation.rate)
    if (vendorCount === undefined) headers['x-svc-estimated'] = 'true'
    sendJson(parsed.sink, 200, headers, JSON.stringify(writeCount(tokens)))
    return undefined
  }
  return Stages.begin(authenticate).next(parse).next(respond)
}

export const messageCountStages: Stages<Exchange> = createCountStages({
  defaults: { max_tokens: 1 },
  writeCount: (tokens) => ({ input_tokens: tokens }),
})

export const responseCountStages: Stages<Exchange> = createCountStages({
  defaults: { input: '' },
  writeCount: (tokens) => ({ object: 'response.input_tokens', input_tokens: tokens }),
})
