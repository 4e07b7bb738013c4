import { fetchHandlerFor, gatewayFor } from './requests.js'

// The gateway is made outside of a request, where a Worker may neither start timers nor draw random numbers.
const fetch = fetchHandlerFor(gatewayFor(UPSTREAM_URL))

export default { fetch }
