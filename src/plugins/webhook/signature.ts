/** The signature of a webhook: `t=<seconds>,v1=<HMAC-SHA256 of "<t>.<body>" in hexadecimal>`. */

/** Options for `verifyWebhook()`. */
export interface VerifyWebhookOptions {
  /** Maximum age of the signature, in seconds. Limits how long a recorded request can be repeated. @default 300 */
  readonly toleranceSeconds?: number
  /** Returns the current time in milliseconds since 1970. @default Date.now */
  readonly now?: () => number
}

const DEFAULT_TOLERANCE_SECONDS = 300
const HEADER = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/

export async function sign(body: string, secret: string, seconds: number): Promise<string> {
  const signature = await crypto.subtle.sign('HMAC', await keyOf(secret, 'sign'), bytesOf(`${seconds}.${body}`))
  const hex = Array.from(new Uint8Array(signature), (byte) => byte.toString(16).padStart(2, '0')).join('')
  return `t=${seconds},v1=${hex}`
}

/**
 * Resolves with true if a webhook of a gateway has this body. Pass the body as it was received, and the value of
 * `X-Svc-Signature`. The time of the comparison does not depend on the signature.
 *
 * @example
 * const body = await request.text()
 * const isGenuine = await verifyWebhook(body, request.headers.get('x-svc-signature'), secret)
 * const event = isGenuine ? JSON.parse(body) : undefined
 */
export async function verifyWebhook(
  body: string,
  header: string | null | undefined,
  secret: string,
  { toleranceSeconds = DEFAULT_TOLERANCE_SECONDS, now = Date.now }: VerifyWebhookOptions = {},
): Promise<boolean> {
  const [, seconds = '', hex = ''] = HEADER.exec(header ?? '') ?? []
  if (hex === '') return false
  if (!(Math.abs(now() / 1000 - Number(seconds)) <= toleranceSeconds)) return false
  const signature = Uint8Array.from({ length: hex.length / 2 }, (_, index) =>
    Number.parseInt(hex.slice(2 * index, 2 * index + 2), 16),
  )
  // WebCrypto compares in constant time.
  return crypto.subtle.verify('HMAC', await keyOf(secret, 'verify'), signature, bytesOf(`${seconds}.${body}`))
}

function keyOf(secret: string, usage: 'sign' | 'verify'): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', bytesOf(secret), { name: 'HMAC', hash: 'SHA-256' }, false, [usage])
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text)
}
