import type { HeaderRecord, HttpRequest, ResponseSink } from '../../src/core/http.ts'

export interface ClientRequest {
  readonly path: string
  readonly body: object
  /** Additional headers. */
  readonly more?: Readonly<Record<string, string>>
}

/** A client and its connection. Records every call that violates the contract of `ResponseSink`. */
export class ScriptedClient implements ResponseSink {
  readonly faults: string[] = []
  text = ''
  status = 0
  endings = 0
  isSlow = false
  isFull = false
  hasLeft = false
  #drained: () => void = () => {}
  #left: () => void = () => {}

  request(secret: string, { path, body, more = {} }: ClientRequest): HttpRequest {
    const headers: Readonly<Record<string, string>> = {
      'content-type': 'application/json',
      'x-api-key': secret,
      ...more,
    }
    return {
      method: 'POST',
      path,
      query: '',
      origin: 'http://gateway.test',
      header: (name) => headers[name],
      headerNames: () => Object.keys(headers),
      body: () => new TextEncoder().encode(JSON.stringify(body)),
      onDisconnect: (listener) => {
        this.#left = listener
        if (this.hasLeft) queueMicrotask(listener)
      },
    }
  }

  send(status: number, _headers: HeaderRecord, body: Uint8Array | string): void {
    this.#begin(status)
    this.text += typeof body === 'string' ? body : new TextDecoder().decode(body)
    this.endings += 1
  }

  begin(status: number): void {
    this.#begin(status)
  }

  write(bytes: Uint8Array | string): boolean {
    if (this.status === 0) this.faults.push('write before begin')
    if (this.endings > 0) this.faults.push('write after the end')
    if (this.isFull && !this.hasLeft) this.faults.push('write to a client that is full')
    this.text += typeof bytes === 'string' ? bytes : new TextDecoder().decode(bytes)
    this.isFull = this.isSlow
    return !this.isFull
  }

  onDrain(listener: () => void): void {
    this.#drained = listener
  }

  end(): void {
    this.#end('end')
  }

  destroy(): void {
    this.#end('destroy')
  }

  drain(): void {
    this.isSlow = false
    if (!this.isFull || this.hasLeft) return
    this.isFull = false
    this.#drained()
  }

  leave(): void {
    if (this.hasLeft || this.endings > 0) return
    this.hasLeft = true
    this.#left()
  }

  #begin(status: number): void {
    if (this.status !== 0) this.faults.push('began twice')
    this.status = status
  }

  #end(how: string): void {
    if (this.endings > 0) this.faults.push(`${how} after the end`)
    this.endings += 1
  }
}
