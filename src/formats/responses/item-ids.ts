import { GatewayError } from '../../core/errors.ts'
import { asArray, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { isAbsent } from '../read-fields.ts'

/**
 * Returns the ids of the input items that have a type or a role, and the approvals that they answer. The vendor may load
 * the stored item of such an id. References (items with only an id) are resolved before.
 */
export function typedItemIds(body: JsonObject): readonly string[] {
  const ids = new Set<string>()
  for (const item of asArray(body['input'])) {
    if (!isTypedItem(item)) continue
    const { id, approval_request_id: approvalId } = item
    if (typeof id === 'string') ids.add(id)
    if (typeof approvalId === 'string') ids.add(approvalId)
  }
  return [...ids]
}

/**
 * Removes the ids that the key does not hold from the items. Items of one response keep or lose their ids together, because
 * vendors reject a call or a text whose reasoning has lost its id, and reasoning whose call has.
 *
 * Returns the same object if the key holds all ids. Throws `invalid-request` for an item that consists of its id.
 */
export function removeForeignItemIds(body: JsonObject, heldIds: ReadonlySet<string>): JsonObject {
  if (!asArray(body['input']).some((item) => isTypedItem(item) && hasUnheldId(item, heldIds))) return body
  const approvalIds = new Map<string, string>()
  const input = asArray(body['input']).flatMap((item, index): Json[] => {
    if (!isTypedItem(item)) return [item]
    const checked = withOwnApproval(item, { param: `input[${index}]`, heldIds, approvalIds })
    const { id, ...others } = checked
    if (isAbsent(id) || (typeof id === 'string' && heldIds.has(id))) return [checked]
    if (hasContent(others)) return [withoutId(others, id, index, approvalIds)]
    if (EXPENDABLE_TYPES.has(asString(item['type']) ?? '')) return []
    throw unknownItem(`input[${index}]`, id)
  })
  return { ...body, input }
}

interface ApprovalContext {
  readonly param: string
  readonly heldIds: ReadonlySet<string>
  /** The new ids of approval requests in the input, by their received ids. */
  readonly approvalIds: ReadonlyMap<string, string>
}

function withOwnApproval(item: JsonObject, { param, heldIds, approvalIds }: ApprovalContext): JsonObject {
  const id = item['approval_request_id']
  if (isAbsent(id)) return item
  const newId = typeof id === 'string' ? approvalIds.get(id) : undefined
  if (newId !== undefined) return { ...item, approval_request_id: newId }
  if (typeof id === 'string' && heldIds.has(id)) return item
  // A call repeats the id of its approval, which may be gone from the input.
  if (item['type'] === 'mcp_call') return { ...item, approval_request_id: null }
  throw unknownItem(`${param}.approval_request_id`, id)
}

/** An approval refers to its request by id, so the request gets an id that is unique only in this input. */
function withoutId(item: JsonObject, id: Json, index: number, approvalIds: Map<string, string>): JsonObject {
  if (item['type'] !== 'mcp_approval_request' || typeof id !== 'string') return item
  const newId = `mcpr_input${index}`
  approvalIds.set(id, newId)
  return { ...item, id: newId }
}

function isTypedItem(item: Json): item is JsonObject {
  if (!isJsonObject(item) || item['type'] === 'item_reference') return false
  return !isAbsent(item['type']) || item['role'] !== undefined
}

function hasUnheldId({ id, approval_request_id: approvalId }: JsonObject, heldIds: ReadonlySet<string>): boolean {
  return !(isHeld(id, heldIds) && isHeld(approvalId, heldIds))
}

function isHeld(id: Json | undefined, heldIds: ReadonlySet<string>): boolean {
  return isAbsent(id) || (typeof id === 'string' && heldIds.has(id))
}

const IDENTIFYING_FIELDS: ReadonlySet<string> = new Set(['type', 'status'])
/** Clients send these items back with each turn. Without content, they add nothing to the conversation. */
const EXPENDABLE_TYPES: ReadonlySet<string> = new Set(['reasoning', 'web_search_call'])

function hasContent(item: JsonObject): boolean {
  if (item['type'] === 'image_generation_call') return isPresent(item['result'])
  return Object.entries(item).some(([name, value]) => !IDENTIFYING_FIELDS.has(name) && isPresent(value))
}

function isPresent(value: Json | undefined): boolean {
  return !isAbsent(value) && value !== '' && !(Array.isArray(value) && value.length === 0)
}

const MAX_QUOTED_LENGTH = 100

function unknownItem(param: string, id: Json | undefined): GatewayError {
  const quoted = JSON.stringify(asString(id)?.slice(0, MAX_QUOTED_LENGTH) ?? typeof id)
  return new GatewayError(
    'invalid-request',
    `Item with id ${quoted} not found: only the key that received an item can refer to it by its id. Send the item with its content.`,
    { param },
  )
}
