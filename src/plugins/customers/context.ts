/** Checks and joins what the application, the key and the headers of a request say about its caller. */
import { GatewayError } from '../../core/errors.ts'
import type { HttpRequest } from '../../core/http.ts'
import type { CallerContext } from '../../governance/caller.ts'
import { SAFE_ID } from '../../governance/record-table.ts'
import type { VirtualKey } from '../../governance/virtual-key.ts'

const MAX_TAGS = 16
const MAX_TAG_LENGTH = 64
/** Printable ASCII without spaces. */
const CONTEXT_ID = /^[!-~]{1,128}$/
/** Without the characters that separate tags in the header. */
const TAG_NAME = /^[\w.-]+$/
const TAG_VALUE = /^[!-+\--~]+$/
const KNOWN_FIELDS = new Set(['customer', 'user', 'session', 'tags', 'payer'])

/** Throws `invalid-request` with the name of the field. @param source Begins the message. */
export function checkContext(context: unknown, source: string): asserts context is CallerContext {
  if (typeof context !== 'object' || context === null)
    throw contextError(source, 'context', 'an object such as { customer: "acme" }')
  const { customer, user, session, tags, payer } = context as CallerContext
  const unknown = Object.keys(context).find((name) => !KNOWN_FIELDS.has(name))
  if (unknown !== undefined) throw contextError(source, unknown.slice(0, 100), `one of ${[...KNOWN_FIELDS].join(', ')}`)
  if (customer !== undefined && !(typeof customer === 'string' && SAFE_ID.test(customer)))
    throw contextError(source, 'customer', '1 to 128 letters, digits, dots, hyphens and underscores')
  for (const [name, id] of [
    ['user', user],
    ['session', session],
  ] as const) {
    if (id !== undefined && !(typeof id === 'string' && CONTEXT_ID.test(id)))
      throw contextError(source, name, '1 to 128 printable ASCII characters without spaces')
  }
  if (payer !== undefined && payer !== 'operator' && payer !== 'customer')
    throw contextError(source, 'payer', "'operator' or 'customer'")
  if (payer === 'customer' && customer === undefined)
    throw contextError(source, 'customer', 'an id, because payer is "customer"')
  if (tags !== undefined) checkTags(tags, source)
}

function checkTags(tags: unknown, source: string): void {
  const expected = `an object with at most ${MAX_TAGS} names and values of 1 to ${MAX_TAG_LENGTH} characters: names of letters, digits, dots, hyphens and underscores; values of printable ASCII without spaces and commas`
  if (typeof tags !== 'object' || tags === null || Array.isArray(tags)) throw contextError(source, 'tags', expected)
  const entries: readonly (readonly [string, unknown])[] = Object.entries(tags)
  const areValid = entries.every(
    ([name, value]) =>
      name.length <= MAX_TAG_LENGTH &&
      TAG_NAME.test(name) &&
      typeof value === 'string' &&
      value.length <= MAX_TAG_LENGTH &&
      TAG_VALUE.test(value),
  )
  if (!areValid || entries.length > MAX_TAGS) throw contextError(source, 'tags', expected)
}

function contextError(source: string, field: string, expected: string): GatewayError {
  return new GatewayError('invalid-request', `${source}: ${field}: expected ${expected}.`, { param: field })
}

const HEADERS = {
  customer: 'X-Svc-Customer',
  user: 'X-Svc-User',
  session: 'X-Svc-Session',
  tags: 'X-Svc-Tags',
} as const

/** Throws 403 if the request has such a header, and its key does not permit it. */
export function readContextHeaders(request: Pick<HttpRequest, 'header'>, key: VirtualKey | undefined): CallerContext {
  const names = Object.values(HEADERS).filter((name) => request.header(name.toLowerCase()) !== undefined)
  const [first] = names
  if (first === undefined) return {}
  if (key?.trustsContext !== true) {
    throw new GatewayError(
      'not-permitted',
      `${first} is not permitted for this key, because callers could then choose who pays. Remove the header, or ask the operator to set trustsContext (trusts_context in the admin API) of the key.`,
      { param: first, code: 'context_not_trusted' },
    )
  }
  const valueOf = (field: keyof typeof HEADERS): string | undefined =>
    request.header(HEADERS[field].toLowerCase())?.trim()
  const tags = valueOf('tags')
  const context = {
    ...definedField('customer', valueOf('customer')),
    ...definedField('user', valueOf('user')),
    ...definedField('session', valueOf('session')),
    ...(tags !== undefined && { tags: parseTags(tags) }),
  }
  checkContext(context, 'The X-Svc headers')
  return context
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
