/** Joins what the application, the key and the headers of a request say about its caller. */
import { GatewayError } from '../../core/errors.ts'
import { CONTEXT_HEADERS, type HttpRequest } from '../../core/http.ts'
import type { CallerContext } from '../../governance/caller.ts'
import type { VirtualKey } from '../../governance/virtual-key.ts'
import { readContext } from '../../governance/context.ts'

/** Throws 403 if the request has such a header, and its key does not permit it. */
export function readContextHeaders(request: Pick<HttpRequest, 'header'>, key: VirtualKey | undefined): CallerContext {
  const names = Object.values(CONTEXT_HEADERS).filter((name) => request.header(name.toLowerCase()) !== undefined)
  const [first] = names
  if (first === undefined) return {}
  if (key?.trustsContext !== true) {
    throw new GatewayError(
      'not-permitted',
      `${first} is not permitted for this key, because callers could then choose who pays. Remove the header, or ask the operator to set trustsContext (trusts_context in the admin API) of the key.`,
      { param: first, code: 'context_not_trusted' },
    )
  }
  const valueOf = (field: keyof typeof CONTEXT_HEADERS): string | undefined =>
    request.header(CONTEXT_HEADERS[field].toLowerCase())?.trim()
  const tags = valueOf('tags')
  const context = {
    ...definedField('customer', valueOf('customer')),
    ...definedField('user', valueOf('user')),
    ...definedField('session', valueOf('session')),
    ...(tags !== undefined && { tags: parseTags(tags) }),
  }
  return readContext(context, 'The X-Svc headers')
}

function definedField<Name extends string>(
  name: Name,
  value: string | undefined,
): { readonly [field in Name]?: string } {
  return value === undefined ? {} : ({ [name]: value } as { readonly [field in Name]: string })
}

/** An entry without a value is kept, so that the check refuses it. */
function parseTags(text: string): Readonly<Record<string, string>> {
  const entries = text.split(',').map((entry) => {
    const [name = '', ...value] = entry.split('=')
    return [name.trim(), value.join('=').trim()] as const
  })
  return Object.fromEntries(entries)
}

/** The context of the application wins over the key's record, which wins over headers. Field by field. */
export function joinContexts(
  application: CallerContext | undefined,
  key: VirtualKey | undefined,
  headers: CallerContext,
): CallerContext {
  const customer = application?.customer ?? key?.customer ?? headers.customer
  const user = application?.user ?? headers.user
  const session = application?.session ?? headers.session
  const tags = { ...headers.tags, ...application?.tags }
  return {
    ...definedField('customer', customer),
    ...definedField('user', user),
    ...definedField('session', session),
    ...(Object.keys(tags).length > 0 && { tags }),
    ...(application?.payer !== undefined && { payer: application.payer }),
  }
}
