import { GatewayError } from '../core/errors.ts'

/** Work in steps of about a millisecond. The caller yields to the event loop between steps. */
export type Steps<value> = Generator<void, value, undefined>

const MAX_REASON = 100
const REPLACEMENT = '\uFFFD'

/** Throws `invalid-request`. For a part of a text, the message omits positions, which would mislead. */
export function parseJson(text: string, isPart = true): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (text.trim() === '') throw notAnObject('is empty')
    const reason = error instanceof Error ? error.message.slice(0, MAX_REASON) : 'it cannot be parsed'
    throw notAnObject(`is not valid JSON: ${isPart ? reason.replace(/ at position \d.*/s, '') : reason}`)
  }
}

export function notAnObject(reason: string): GatewayError {
  return new GatewayError('invalid-request', `The request body ${reason}. Send one JSON object.`)
}

/** Throws `invalid-request`. */
export function decodeUtf8(bytes: Uint8Array): string {
  // Node's own conversion is several times faster than a decoder that checks, and writes U+FFFD where bytes are wrong.
  const text = isNodeBytes(bytes) ? bytes.utf8Slice() : REPLACEMENT
  return text.includes(REPLACEMENT) ? decoder()(bytes, false) : text
}

/** A strict decoder of pieces that follow each other. Throws `invalid-request`. */
export function decoder(): (bytes: Uint8Array, hasMore: boolean) => string {
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  return (bytes, hasMore) => {
    try {
      return utf8.decode(bytes, { stream: hasMore })
    } catch {
      throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
    }
  }
}

/** The method of Node's Buffer that is used. */
interface NodeBytes {
  utf8Slice(): string
  latin1Slice(): string
}

export function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'utf8Slice' in bytes
}
