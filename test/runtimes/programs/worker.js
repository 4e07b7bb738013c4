import { fetchHandlerFor, gatewayFor } from './requests.js'

// The gateway is created outside of a request, where a Worker cannot start timers or generate random numbers.
const fetch = fetchHandlerFor(gatewayFor(UPSTREAM_URL))

export default { fetch }
