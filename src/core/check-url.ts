import { expects, type OptionCheck } from './check-options.ts'

const LOCAL_HOSTS: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]'])

/** For URLs that receive events of the operator. */
export const checkReceiverUrl: OptionCheck = expects(
  'an https URL without credentials (http only on localhost)',
  (value) => {
    if (typeof value !== 'string' || !URL.canParse(value)) return false
    const { protocol, hostname, username, password } = new URL(value)
    if (username !== '' || password !== '') return false
    return protocol === 'https:' || (protocol === 'http:' && LOCAL_HOSTS.has(hostname))
  },
)
