/** Reads and writes records over HTTP. Part of the kernel because the plugins admin and customers need it. */
import { GatewayError } from '../core/errors.ts'
import { toWire, toWireName } from '../core/field-names.ts'
import type { JsonObject } from '../core/json.ts'
import { parseBodyInSteps } from '../formats/parse-body.ts'
import { checkJsonHeaders } from '../http/body.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import type { Call } from './call.ts'
import { parseLimits } from './limits.ts'
import type { Services } from './services.ts'

/** Renames the fields of the result, and the field that an error names. */
export function inWireForm(action: (call: Call) => Promise<object>): (call: Call) => Promise<object> {
  return async (call) => {
    try {
      return Object(toWire(await action(call)))
    } catch (error) {
      throw GatewayError.is(error) ? withWireName(error) : error
    }
  }
}

function withWireName(error: GatewayError): GatewayError {
  const { kind, message, details } = error
  const { param = '' } = details
  const wireName = toWireName(param)
  return param === wireName
    ? error
    : new GatewayError(kind, message.replace(param, wireName), { ...details, param: wireName })
}

export async function readAdminBody(
  { request }: Call,
  { bodyLimits, limits, runtime }: Pick<Services, 'bodyLimits' | 'limits' | 'runtime'>,
): Promise<JsonObject> {
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const bytes = await request.body(bodyLimits)
  try {
    const { body } = await parseBodyInSteps(bytes, parseLimits(limits), { pause: yieldToEventLoop, uuid: runtime.uuid })
    return Object.fromEntries(Object.entries(body).filter(([name]) => !IGNORED_FIELDS.has(name)))
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'invalid-request') {
      throw new GatewayError('invalid-admin-request', error.message, error.details)
    }
    throw error
  }
}

/** Clients may send back a created key with its `value`, but a secret cannot be chosen over HTTP. */
const IGNORED_FIELDS: ReadonlySet<string> = new Set(['__proto__', 'value'])
