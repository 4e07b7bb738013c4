export { serve, toNodeHandler, type NodeHandler, type RunningServer, type ServeOptions } from './http/node-server.ts'
export type { NodeIncoming } from './http/node-http.ts'
export type { AdapterOptions, FetchHandling, Served } from './http/served.ts'
export type { HttpHandler, HttpHandling, HttpRequest, ResponseSink } from './core/http.ts'
