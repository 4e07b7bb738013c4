import type { IncomingMessage, ServerResponse } from 'node:http'
import { NodeRequest } from 'srvx/node'

/** A request of node:http, and what a framework may have made of it. */
export interface NodeIncoming extends IncomingMessage {
  /** The parsed body, where a body parser has run. */
  readonly body?: unknown
  /** The unparsed body, where something has kept it. */
  readonly rawBody?: unknown
}

type ByteStream = ReadableStream<Uint8Array<ArrayBuffer>>

/**
 * The web request of a node:http request. All but the body is srvx's: it reads headers, address and signal only when
 * asked. Its body is replaced for two reasons: once cancelled (413, 415), the rest of the request would never be read and
 * the connection stay open, stuck; and `arrayBuffer` would make a request of undici, which costs more than all the rest.
 */
export class IncomingRequest extends NodeRequest {
  readonly #incoming: NodeIncoming
  #body: ByteStream | null | undefined
  #taken = false

  constructor(incoming: NodeIncoming, outgoing: ServerResponse) {
    super({ req: incoming, res: outgoing })
    this.#incoming = incoming
  }

  override get body(): ByteStream | null {
    if (this.#body === undefined) this.#body = hasBody(this.#incoming) ? openBody(this.#incoming) : null
    return this.#body
  }

  override get bodyUsed(): boolean {
    return this.#taken || super.bodyUsed
  }

  override async arrayBuffer(): Promise<ArrayBuffer> {
    if (this.bodyUsed) throw new TypeError('The body of this request was read already.')
    this.#taken = true
    if (this.#body !== undefined) return new Response(this.#body).arrayBuffer()
    return hasBody(this.#incoming) ? readAll(this.#incoming) : new ArrayBuffer(0)
  }

  override async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await this.arrayBuffer())
  }

  override async text(): Promise<string> {
    return new TextDecoder().decode(await this.arrayBuffer())
  }

  override async json(): Promise<unknown> {
    return JSON.parse(await this.text())
  }

  override clone(): Request {
    const { body, url, method, headers, signal } = this
    if (body === null) return new Request(url, { method, headers, signal })
    const [mine, theirs] = body.tee()
    this.#body = mine
    return new Request(url, { method, headers, signal, body: theirs, duplex: 'half' } as RequestInit)
  }
}

function hasBody({ method }: NodeIncoming): boolean {
  return method !== 'GET' && method !== 'HEAD'
}

function openBody(incoming: NodeIncoming): ByteStream {
  const chunks = chunksOf(incoming)
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await chunks.next()
        if (done === true) controller.close()
        else controller.enqueue(value)
      },
      cancel() {
        // A chunk may still be awaited, and only its arrival lets the iterator return.
        chunks.return?.().catch(() => undefined)
      },
    },
    { highWaterMark: 0 },
  )
}

function chunksOf(incoming: NodeIncoming): AsyncIterator<Uint8Array<ArrayBuffer>> {
  if (incoming.rawBody instanceof Uint8Array) return keptChunk(incoming.rawBody)
  return incoming.iterator({ destroyOnReturn: false })
}

async function* keptChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  yield new Uint8Array(bytes)
}

/** The whole body. Rejects when the caller leaves before its end. */
async function readAll(incoming: NodeIncoming): Promise<ArrayBuffer> {
  if (incoming.rawBody instanceof Uint8Array) return new Uint8Array(incoming.rawBody).buffer
  const chunks: Uint8Array[] = []
  const keep = (chunk: Uint8Array): void => void chunks.push(chunk)
  incoming.on('data', keep)
  try {
    await ended(incoming)
  } finally {
    incoming.off('data', keep)
  }
  return join(chunks)
}

function ended(incoming: NodeIncoming): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      incoming.off('end', settle)
      incoming.off('error', settle)
      incoming.off('close', settle)
      if (incoming.readableEnded && !incoming.errored) resolve()
      else reject(new DOMException('The caller left before the end of the request.', 'AbortError'))
    }
    if (incoming.destroyed) return settle()
    incoming.on('end', settle)
    incoming.on('error', settle)
    incoming.on('close', settle)
  })
}

function join(chunks: readonly Uint8Array[]): ArrayBuffer {
  const whole = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.byteLength, 0))
  let offset = 0
  for (const chunk of chunks) {
    whole.set(chunk, offset)
    offset += chunk.byteLength
  }
  return whole.buffer
}
