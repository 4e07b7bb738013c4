/** The HTTP API for customers. */
import { invalidFieldError, parseDigits } from '../../governance/page-query.ts'
import type { Endpoint } from '../../http/router.ts'
import { type AdminOptions, createGate } from '../../kernel/admin-access.ts'
import { inWireForm, readAdminBody } from '../../kernel/admin-body.ts'
import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'
import type { CustomerQuery } from './customer-api.ts'
import { createCustomerInput, type CustomerRecords } from './customer-records.ts'

const PATH = '/api/governance/customers'

export function customerEndpoints(
  load: () => Promise<CustomerRecords>,
  {
    plans,
    admin,
    services,
  }: {
    readonly plans: readonly string[]
    readonly admin: AdminOptions | undefined
    readonly services: Services
  },
): readonly Endpoint<Handler>[] {
  const gate = createGate(admin, services)
  const input = createCustomerInput('wire', plans)
  const respond = (action: (records: CustomerRecords, call: Call) => Promise<object>, status?: number): Handler =>
    gate.respondWith(
      inWireForm(async (call) => action(await load(), call)),
      status,
    )
  const withBody = <Fields>(
    parse: (body: unknown) => Fields,
    action: (records: CustomerRecords, fields: Fields, id: string) => Promise<object>,
    status?: number,
  ): Handler =>
    gate.respondWith(async (call) => {
      const fields = parse(await readAdminBody(call, services))
      return inWireForm(async () => action(await load(), fields, pathId(call)))(call)
    }, status)
  return [
    { method: 'POST', path: PATH, handle: withBody(input.parseNew, (records, fields) => records.create(fields), 201) },
    { method: 'GET', path: PATH, handle: respond((records, call) => records.list(queryOf(call))) },
    { method: 'GET', path: `${PATH}/:id`, handle: respond((records, call) => records.get(pathId(call))) },
    {
      method: 'PUT',
      path: `${PATH}/:id`,
      handle: withBody(input.parseChange, (records, change, id) => records.update(id, change)),
    },
    {
      method: 'DELETE',
      path: `${PATH}/:id`,
      handle: respond((records, call) => {
        checkParameters(call, ['purge'])
        return records.delete(pathId(call), { purge: flagOf(call, 'purge') ?? false })
      }),
    },
    {
      method: 'POST',
      path: `${PATH}/:id/raise`,
      handle: withBody(input.parseRaise, (records, raise, id) => records.raise(id, raise)),
    },
  ]
}

function flagOf({ query }: Call, name: string): boolean | undefined {
  const text = query.get(name)
  if (text !== null && text !== 'true' && text !== 'false') throw invalidFieldError(name, 'expected true or false.')
  return text === null ? undefined : text === 'true'
}

const LIST_PARAMETERS = ['limit', 'after', 'search', 'parent', 'plan', 'active'] as const

/** A misspelled filter would select all customers, and a misspelled `purge` would keep what is stored. */
function checkParameters({ query }: Call, names: readonly string[]): void {
  for (const name of query.keys())
    if (!names.includes(name)) throw invalidFieldError(name.slice(0, 100), `expected one of ${names.join(', ')}.`)
}

function queryOf(call: Call): CustomerQuery {
  checkParameters(call, LIST_PARAMETERS)
  const { query } = call
  const limit = query.get('limit')
  const active = flagOf(call, 'active')
  return {
    ...(limit !== null && { limit: parseDigits(limit) }),
    ...textField(query, 'after'),
    ...textField(query, 'search'),
    ...textField(query, 'parent'),
    ...textField(query, 'plan'),
    ...(active !== undefined && { active }),
  }
}

function textField<Name extends string>(query: URLSearchParams, name: Name): { readonly [field in Name]?: string } {
  const value = query.get(name)
  return value === null ? {} : ({ [name]: value } as { readonly [field in Name]: string })
}
