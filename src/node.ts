/**
 * Serves a gateway with node:http.
 *
 * ```ts
 * import { createGateway, extractive } from 'sluice'
 * import { serve } from 'sluice/node'
 *
 * const gateway = createGateway({ providers: [extractive()] })
 * const server = await serve(gateway, { port: 3000 })
 * ```
 *
 * @module
 */
export { serve, toNodeHandler, type NodeHandler, type RunningServer, type ServeOptions } from './http/node-server.ts'
export type { NodeIncoming } from './http/node-http.ts'
export type { HttpHandler, HttpHandling, HttpRequest, ResponseSink } from './core/http.ts'
