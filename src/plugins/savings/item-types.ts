import { asString, type JsonObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'

/** Which messages a part belongs to. A part with neither id belongs to its own message only. */
export interface PartLinks {
  /** The id under which a later message refers to this part. */
  readonly opens?: string
  /** The id of an earlier part that this part completes. */
  readonly closes?: string
  /**
   * What no tier may change because of this part: its `segment` (a definition of tools, an approval, a compacted
   * conversation), or its `turn`, up to the next user message (a part of an unknown type). @default nothing
   */
  readonly keeps?: 'segment' | 'turn'
}

type IdField = 'call_id' | 'tool_use_id' | 'id' | 'approval_request_id'

interface KnownType extends Pick<PartLinks, 'keeps'> {
  readonly opens?: readonly IdField[]
  readonly closes?: readonly IdField[]
}

const group = (names: string, known: KnownType): readonly (readonly [string, KnownType])[] =>
  names.split(' ').map((name) => [name, known])

/** Types of items and blocks that are not read as calls or results. All other types are unknown. */
const KNOWN_TYPES: ReadonlyMap<string, KnownType> = new Map([
  ...group('local_shell_call shell_call apply_patch_call computer_call', { opens: ['call_id', 'id'] }),
  ...group('local_shell_call_output shell_call_output apply_patch_call_output computer_call_output', {
    closes: ['call_id', 'id'],
  }),
  ...group('server_tool_use mcp_tool_use', { opens: ['id'] }),
  ...group(
    'web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result ' +
      'text_editor_code_execution_tool_result mcp_tool_result',
    { closes: ['tool_use_id'] },
  ),
  // Complete in themselves.
  ...group('web_search_call file_search_call code_interpreter_call image_generation_call', {}),
  ...group('refusal image document file input_file input_audio search_result', {}),
  // Later parts depend on these.
  ...group('additional_tools mcp_list_tools tool_reference container_upload compaction compaction_summary', {
    keeps: 'segment',
  }),
  ...group('tool_search_call', { opens: ['call_id', 'id'], keeps: 'segment' }),
  ...group('tool_search_output', { closes: ['call_id', 'id'], keeps: 'segment' }),
  ...group('tool_search_tool_result', { closes: ['tool_use_id'], keeps: 'segment' }),
  ...group('mcp_approval_request', { opens: ['id'], keeps: 'segment' }),
  ...group('mcp_approval_response', { closes: ['approval_request_id'], keeps: 'segment' }),
  ...group('mcp_call', { closes: ['approval_request_id'] }),
])

const UNKNOWN: PartLinks = { keeps: 'turn' }

export function linksOf(part: Part): PartLinks {
  switch (part.type) {
    case 'tool-call':
      return { opens: part.id }
    case 'tool-result':
      return { closes: part.callId, ...keepsOf(part.content) }
    case 'opaque':
      return linksOfOpaque(part.native.value)
    default:
      return NO_LINKS
  }
}

const NO_LINKS: PartLinks = {}

function linksOfOpaque(value: JsonObject): PartLinks {
  const known = KNOWN_TYPES.get(asString(value['type']) ?? '')
  if (known === undefined) return UNKNOWN
  const opens = firstId(value, known.opens)
  const closes = firstId(value, known.closes)
  // A call without an id may belong to any later part.
  if (known.opens !== undefined && opens === undefined) return UNKNOWN
  const { keeps } = known
  return { ...(opens !== undefined && { opens }), ...(closes !== undefined && { closes }), ...(keeps && { keeps }) }
}

function firstId(value: JsonObject, fields: readonly IdField[] = []): string | undefined {
  for (const field of fields) {
    const id = asString(value[field])
    if (id !== undefined) return id
  }
  return undefined
}

function keepsOf(content: readonly Part[]): Pick<PartLinks, 'keeps'> {
  const kept = content.flatMap((part) => linksOf(part).keeps ?? [])
  if (kept.length === 0) return NO_LINKS
  return { keeps: kept.includes('turn') ? 'turn' : 'segment' }
}
