import { chain, lazy, type MaybePromise } from '../../core/async.ts'
import type { OptionCheck } from '../../core/check-options.ts'
import { lazyMethods } from '../../core/lazy-methods.ts'
import type { AdminOptions } from '../../kernel/admin-access.ts'
import type { BuiltInPlugin, Identify } from '../../kernel/services.ts'
import type { ConfiguredCustomer, Customers } from './customer-api.ts'
import { createCustomerChecks } from './customer-input.ts'
import type { Identification, IdentifyOptions } from './identify.ts'

export interface CustomersPlugin {
  readonly identify: Identify
  readonly findLevels: Identification['findLevels']
  readonly records: Customers
  readonly plugin: BuiltInPlugin
  readonly configuration: {
    readonly check: OptionCheck
    readonly apply: (customers: readonly ConfiguredCustomer[]) => Promise<void>
  }
}

interface CustomersDependencies {
  /** Returns undefined if the configured customers are stored. */
  readonly whenConfigured: () => MaybePromise<void>
  readonly admin: AdminOptions | undefined
  /** Deletes what is stored for the callers of a scope. */
  readonly purge: (scope: string) => Promise<void>
}

const METHODS = { create: true, get: true, list: true, update: true, delete: true, raise: true } as const

/** Loads the code with its first use. */
export function createCustomers(
  options: IdentifyOptions,
  { whenConfigured, admin, purge }: CustomersDependencies,
): CustomersPlugin {
  const plans = Object.keys(options.plans)
  const loadTables = lazy(async () => (await import('./identify.ts')).createCustomerTables(options))
  const load = lazy(async () => {
    const { CustomerRecords, inProcessCustomers } = await import('./customer-records.ts')
    const records = new CustomerRecords({ ...options, purge }, await loadTables())
    return { records, inProcess: inProcessCustomers(records, plans) }
  })
  const whenReady = async (): ReturnType<typeof load> => {
    await whenConfigured()
    return load()
  }
  let identification: Identification | undefined
  const loadIdentification = lazy(async () => {
    const { Identification } = await import('./identify.ts')
    return (identification = new Identification(options, await loadTables()))
  })
  const findIdentification = (): MaybePromise<Identification> => identification ?? loadIdentification()
  return {
    identify: (request) => chain(chain(whenConfigured(), findIdentification), ({ identify }) => identify(request)),
    findLevels: async (query) => {
      await whenConfigured()
      return (await findIdentification()).findLevels(query)
    },
    records: lazyMethods(async () => (await whenReady()).inProcess, METHODS),
    plugin: {
      endpoints: async (services) => {
        const { customerEndpoints } = await import('./routes.ts')
        return customerEndpoints(async () => (await whenReady()).records, { plans, admin, services })
      },
    },
    configuration: {
      check: createCustomerChecks('both', plans).configured,
      apply: async (customers) => (await load()).records.configure(customers),
    },
  }
}
