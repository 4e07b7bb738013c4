/** What a response was made of. */
export interface Made {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

/** An adapter sends such responses without drawing them out of web objects again. */
const made = new WeakMap<Response, Made>()

/** A response with a text as its body. */
export function textResponse(text: string, status: number, headers: Readonly<Record<string, string>>): Response {
  const response = new Response(text, { status, headers })
  made.set(response, { headers, text })
  return response
}

/** What a response was made of, as long as nobody has begun to read its body. */
export function madeOf(response: Response): Made | undefined {
  const known = made.get(response)
  return known === undefined || response.bodyUsed ? undefined : known
}
