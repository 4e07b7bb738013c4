/** How to handle requests that the gateway cannot price, translate or account for exactly. */
export interface Policies {
  /**
   * How to handle requests that make the vendor read content outside their body or run tools, such as server tools, MCP
   * servers, and images and documents by URL or id. `reserve` reserves the model's whole context window. `refuse`
   * responds with 403. `allow` reserves only the cost of the body and the response, so a request can exceed the budget.
   * @default 'reserve'
   */
  readonly vendorTools: 'reserve' | 'refuse' | 'allow'
  /**
   * How to handle fields that make the vendor charge more than the list price, such as `service_tier: 'priority'`.
   * `bill` bills the price of the tier that the response reports, and responds with 400 if its price is unknown. `refuse`
   * always responds with 400. `allow` is `bill`, but bills the list price where the price is unknown; the operator pays
   * the difference. @default 'bill'
   */
  readonly surcharges: 'bill' | 'refuse' | 'allow'
  /**
   * How to handle a request field that the upstream's format does not support. `refuse` responds with 400 and the name
   * of the field. `drop` omits the field and lists it in `X-Svc-Ignored`. @default 'refuse'
   */
  readonly onUntranslatable: 'refuse' | 'drop'
  /**
   * How to handle a request whose key, limits or budget cannot be checked because the store fails. `refuse` responds
   * with 503 and calls no upstream. `allow` serves keys that this process has already seen, without enforcing limits,
   * and bills them when the store is available again. See docs/operating.md for exceptions. @default 'refuse'
   */
  readonly onStoreFailure: 'refuse' | 'allow'
}
