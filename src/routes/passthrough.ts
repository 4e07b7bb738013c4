import { GatewayError } from '../core/errors.ts'
import type { Store } from '../core/store.ts'
import { chatClient } from '../formats/chat/client.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Endpoint } from '../http/router.ts'
import { authenticate, findCaller } from '../pipeline/authenticate.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'
import { passThrough } from '../pipeline/pass-through.ts'
import type { PassthroughName, PassthroughOptions } from '../pipeline/passthrough-options.ts'
import { notOpen, type PassTarget } from '../pipeline/passthrough-request.ts'
import type { Services } from '../pipeline/services.ts'
import { Stages } from '../pipeline/stages.ts'
import type { Call, Handler } from './endpoint.ts'
import { exchangeOf } from './exchange-of.ts'
import { createFileOwners } from './file-owners.ts'

export interface PassthroughParts {
  readonly services: Services
  readonly store: Store
  readonly options: PassthroughOptions
}

/**
 * Endpoints other than model calls. The vendor's path is built from validated parts. The path and query of the caller
 * are never forwarded as received.
 */
export function passthroughEndpoints(parts: PassthroughParts): readonly Endpoint<Handler>[] {
  const { services, options } = parts
  const create = (name: PassthroughName): Endpoint<Handler> => ({
    method: 'POST',
    path: `/v1/${name}`,
    handle: handler(services, () => ({ name, endpoint: options[name], method: 'POST', path: `/${name}` })),
  })
  const act = (name: PassthroughName): Endpoint<Handler> => ({
    method: 'POST',
    path: `/v1/${name}/:action`,
    handle: handler(services, (call) => {
      const path = `/${name}/${segmentOf(call, 'action')}`
      return { name, endpoint: options[name], method: 'POST', path }
    }),
  })
  return [
    act('images'),
    act('audio'),
    create('moderations'),
    create('completions'),
    create('rerank'),
    ...fileEndpoints(parts),
  ]
}

/** A key can use only the files that it created, although the vendor's account contains the files of all keys. */
function fileEndpoints({ services, store, options }: PassthroughParts): readonly Endpoint<Handler>[] {
  const owners = createFileOwners(store, services)
  const shared = { name: 'files', endpoint: options.files } as const
  const ofFile = (method: 'GET' | 'DELETE', suffix: string): Endpoint<Handler> => ({
    method,
    path: `/v1/files/:id${suffix}`,
    handle: handler(services, (call) => {
      const id = segmentOf(call, 'id')
      const forget = (key: VirtualKey): Promise<void> => owners.forget(key, id)
      return {
        ...shared,
        method,
        path: `/files/${id}${suffix}`,
        holder: (key) => owners.holderOf(key, id),
        // A file that the vendor has let expire would count as the key's for ever.
        ...(method === 'DELETE' && { keep: forget, forget }),
      }
    }),
  })
  return [
    {
      method: 'POST',
      path: '/v1/files',
      handle: handler(services, () => ({ ...shared, method: 'POST', path: '/files', keep: owners.hold })),
    },
    {
      method: 'GET',
      path: '/v1/files',
      handle: async (call) => {
        const key = await findCaller(call.request, services)
        if (options.files === undefined) throw notOpen('files')
        const list = await owners.list(key, call.query)
        sendJson(call.sink, 200, baseHeaders(call.id, await services.ledger.status(key)), JSON.stringify(list))
      },
    },
    ofFile('GET', ''),
    ofFile('DELETE', ''),
    ofFile('GET', '/content'),
  ]
}

function handler(services: Services, targetOf: (call: Call) => PassTarget): Handler {
  return (call) => {
    const stages = Stages.begin(authenticate).next((exchange) => passThrough(exchange, targetOf(call), services))
    return stages.run(exchangeOf(call, chatClient), services)
  }
}

/** Returns one segment of a vendor's path. Names of vendors contain no dots, slashes or percent signs, also encoded. */
function segmentOf(call: Call, variable: string): string {
  const segment = call.variables[variable] ?? ''
  if (/^[\w-]{1,200}$/.test(segment)) return segment
  throw new GatewayError('not-found', 'The path contains a segment that no vendor path has. Check the path.')
}
