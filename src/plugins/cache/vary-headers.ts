import type { HttpRequest } from '../../core/http.ts'
import type { Provider } from '../../core/ports.ts'
import { FORMAT_HEADERS } from '../../kernel/version-headers.ts'

/** Returns the client's headers that change the response of this provider, or an empty string if they are the default. */
export function varyHeadersOf(
  request: Pick<HttpRequest, 'header'>,
  { varyHeaders }: Pick<Provider, 'varyHeaders'>,
): string {
  let text = ''
  for (const name of FORMAT_HEADERS) {
    if (varyHeaders !== undefined && !(name in varyHeaders)) continue
    const value = request.header(name)
    if (value !== undefined && value !== varyHeaders?.[name]) text += `${name}: ${value}\n`
  }
  return text
}
