/** The texts of responses that were made of one: an adapter sends them without drawing them from a stream again. */
const texts = new WeakMap<Response, string>()

/** A response with a text as its body. */
export function textResponse(text: string, status: number, headers: Record<string, string>): Response {
  const response = new Response(text, { status, headers })
  texts.set(response, text)
  return response
}

/** The text that a response was made of, as long as nobody has begun to read its body. */
export function textOf(response: Response): string | undefined {
  return response.bodyUsed || response.body?.locked === true ? undefined : texts.get(response)
}
