/** Who pays the vendor: the operator of the gateway, or the customer with a vendor key of its own. */
export type Payer = 'operator' | 'customer'

/**
 * Who makes a request, as the application says. Everything is optional. Ids have 1 to 128 characters: those of customers
 * are letters, digits, dots, hyphens and underscores; those of users and sessions are printable ASCII without spaces.
 *
 * @example
 * const { fetch } = gateway.with({ customer: 'acme', user: 'u_17', session: 'run_42', tags: { feature: 'chat' } })
 * const response = await fetch('http://gateway/v1/models')
 */
export interface CallerContext {
  /** Pays for the request. Has budgets, a plan and usage of its own. */
  readonly customer?: string | undefined
  /** The person or program of the customer that makes the request. */
  readonly user?: string | undefined
  /** A conversation, or one run of an agent. */
  readonly session?: string | undefined
  /** For usage reports: at most 16 names and values of at most 64 characters each, such as `{ feature: 'chat' }`. */
  readonly tags?: Readonly<Record<string, string>> | undefined
  /** `customer`: the vendor bills the customer, whose key `apiKey(caller)` of the provider returns. @default 'operator' */
  readonly payer?: Payer | undefined
}
