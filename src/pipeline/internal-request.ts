import type { HeaderRecord, HttpRequest, ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'

/** A request that the gateway sends to itself: the item of a batch. Its body has the same limits as other bodies. */
export function internalRequest(
  path: string,
  headers: Readonly<Record<string, string>>,
  body: JsonObject,
): HttpRequest {
  return {
    method: 'POST',
    path,
    query: '',
    origin: '',
    header: (name) => (name === 'content-type' ? 'application/json' : headers[name]),
    headerNames: () => [...Object.keys(headers), 'content-type'],
    body: () => new TextEncoder().encode(JSON.stringify(body)),
    onDisconnect: () => {},
  }
}

/** Collects a response that is not a stream. */
export class CollectedResponse implements ResponseSink {
  status = 0
  body = ''

  whole(status: number, _headers: HeaderRecord, body: Uint8Array | string): void {
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
