/** Marks the `fetch` that calls the `handle` of its gateway. */
export function markGatewayFetch<Fetch extends object>(fetch: Fetch): Fetch {
  return Object.assign(fetch, { isGatewayFetch: true })
}

export function isGatewayFetch(fetch: object): boolean {
  return 'isGatewayFetch' in fetch
}
