const decoder = new TextDecoder()

/** The text of a body that may be bytes. */
export function bodyText(body: string | Uint8Array): string {
  return typeof body === 'string' ? body : decoder.decode(body)
}
