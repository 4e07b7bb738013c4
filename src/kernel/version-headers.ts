/** The caller's headers that choose a version of the vendor's format. They are forwarded to vendors of the messages format. */
import type { HttpRequest } from '../core/http.ts'
import type { Provider } from '../core/ports.ts'

const VERSION_HEADER = 'anthropic-version'

export const FORMAT_HEADERS: readonly string[] = [VERSION_HEADER, 'anthropic-beta']

export function headersToForward(request: Pick<HttpRequest, 'header'>): Readonly<Record<string, string>> {
  let forwarded: Record<string, string> | undefined
  for (const name of FORMAT_HEADERS) {
    const value = request.header(name)
    if (value !== undefined) (forwarded ??= {})[name] = value
  }
  return forwarded ?? NO_HEADERS
}

const NO_HEADERS: Readonly<Record<string, string>> = {}

/** The first version of the Anthropic API that rejects sampling parameters. */
const VERSION_WITHOUT_SAMPLING = '2026-10-21'

/** True if the version that the provider sends for this request rejects sampling parameters. */
export function rejectsSampling(
  { dialect, varyHeaders }: Pick<Provider, 'dialect' | 'varyHeaders'>,
  request: Pick<HttpRequest, 'header'>,
): boolean {
  if (dialect !== 'messages') return false
  const isForwarded = varyHeaders === undefined || VERSION_HEADER in varyHeaders
  const version = isForwarded ? (request.header(VERSION_HEADER) ?? varyHeaders?.[VERSION_HEADER]) : undefined
  return version !== undefined && version >= VERSION_WITHOUT_SAMPLING
}
