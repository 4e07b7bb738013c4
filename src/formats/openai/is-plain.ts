import type { ByteSearch } from '../../core/byte-search.ts'
import { beginning, isEveryEventAnObject, isOnlyNull } from '../relay.ts'

const PLAIN = ['data: {', 'data:{'].map(beginning)

/**
 * True for chunks that only carry content. Usage and finish reasons are read unless null; tool calls are read because an
 * id may be missing.
 */
export function isPlain(search: ByteSearch): boolean {
  if (search.find('[DONE]') !== -1 || search.find('"error"') !== -1 || search.find('_call') !== -1) return false
  if (search.find('\r') !== -1) return false
  return isOnlyNull(search, '"usage"') && isOnlyNull(search, '"finish_reason"') && isEveryEventAnObject(search, PLAIN)
}
