import type { ByteSearch } from '../../core/byte-search.ts'
import { beginning, isEveryEventAnObject } from '../relay.ts'

/** Events that only carry a piece of what later events repeat whole. */
const DELTAS = [
  'response.output_text.delta',
  'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta',
  'response.refusal.delta',
  'response.function_call_arguments.delta',
  'response.custom_tool_call_input.delta',
  'response.mcp_call_arguments.delta',
  'response.code_interpreter_call_code.delta',
  'response.output_text.annotation.added',
  'response.image_generation_call.partial_image',
]

const PLAIN = DELTAS.map((name) => beginning(`event: ${name}\ndata: {`))

/** True for events that only carry content. Their names decide: the type in their data is the same. */
export function isPlain(search: ByteSearch): boolean {
  return search.find('\r') === -1 && isEveryEventAnObject(search, PLAIN)
}
