import type { ServerResponse } from 'node:http'
import type { HttpHandling } from '../core/http.ts'
import { NodeRequest, type NodeIncoming } from './node-request.ts'
import { NodeSink } from './node-sink.ts'

export type { NodeIncoming } from './node-request.ts'

/**
 * Answers one request of node:http. Resolves when the response is written or the client has disconnected. Never
 * rejects.
 */
export type NodeHandler = (incoming: NodeIncoming, outgoing: ServerResponse) => Promise<void>

/** Returns a request listener for node:http: `http.createServer(toNodeHandler(gateway))`. */
export function toNodeHandler(gateway: HttpHandling): NodeHandler {
  return (incoming, outgoing) =>
    new Promise((resolve) => {
      gateway.handle(new NodeRequest(incoming, outgoing), new NodeSink(incoming, outgoing, resolve))
    })
}

/** The same for `serve`, which does not wait for the response. */
export function toNodeListener(gateway: HttpHandling): (incoming: NodeIncoming, outgoing: ServerResponse) => void {
  return (incoming, outgoing) => gateway.handle(new NodeRequest(incoming, outgoing), new NodeSink(incoming, outgoing))
}
