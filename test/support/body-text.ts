const decoder = new TextDecoder()

/** Decodes a body that may be bytes. */
export function bodyText(body: string | Uint8Array): string {
  return typeof body === 'string' ? body : decoder.decode(body)
}
