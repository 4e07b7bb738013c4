import type { ByteSearch } from '../../core/byte-search.ts'
import { eventLine, isEveryEventAnObject } from '../relay.ts'

const PLAIN_EVENTS = [eventLine('content_block_delta'), eventLine('ping')]

/** True for deltas and pings: the beginnings and ends of messages and blocks are read. */
export function isPlain(search: ByteSearch): boolean {
  if (search.find('message_') !== -1 || search.find('content_block_s') !== -1) return false
  if (search.find('"error"') !== -1 || search.find('\r') !== -1) return false
  return isEveryEventAnObject(search, PLAIN_EVENTS)
}
