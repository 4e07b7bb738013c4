/** A request that the gateway sends to itself, such as an item of a batch, and the sink of its response. */
import type { HeaderRecord, HttpRequest, ResponseSink } from '../core/http.ts'

export function internalRequest(path: string, headers: Readonly<Record<string, string>>, body: string): HttpRequest {
  return {
    method: 'POST',
    path,
    query: '',
    origin: '',
    header: (name) => (name === 'content-type' ? 'application/json' : headers[name]),
    headerNames: () => [...Object.keys(headers), 'content-type'],
    body: () => new TextEncoder().encode(body),
    onDisconnect: () => {},
  }
}

export class CollectedResponse implements ResponseSink {
  status = 0
  body = ''

  send(status: number, _headers: HeaderRecord, body: Uint8Array | string): void {
    this.status = status
    this.body = typeof body === 'string' ? body : new TextDecoder().decode(body)
  }

  begin(): void {}

  write(): boolean {
    return true
  }

  onDrain(): void {}

  end(): void {}

  destroy(): void {}
}
