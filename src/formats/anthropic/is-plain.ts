import type { ByteSearch } from '../../core/byte-search.ts'
import { beginning, isEveryEventAnObject } from '../relay.ts'

/** The name of an event leaves with it, so that only these names are taken, and only when the data agrees. */
const PLAIN = ['content_block_delta', 'ping'].flatMap((name) =>
  ['', ' '].map((space) => beginning(`event: ${name}\ndata: {"type":${space}"${name}"`)),
)

/** True for deltas and pings: the beginnings and ends of messages and blocks are read. */
export function isPlain(search: ByteSearch): boolean {
  if (search.find('message_') !== -1 || search.find('content_block_s') !== -1) return false
  if (search.find('"error"') !== -1 || search.find('\r') !== -1) return false
  return isEveryEventAnObject(search, PLAIN)
}
