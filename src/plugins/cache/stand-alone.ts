import { asObject, isJsonObject, type Json } from '../../core/json.ts'
import { lastUserIndex, textOfMessage } from '../../core/messages.ts'
import { type Message, type Native, type Prompt } from '../../core/prompt.ts'
import { words } from './english.ts'
import { asksForResponses, hasMarkedText, isAboutWording, mayDescribeTask, mentionsTextWork } from './text-work.ts'

/** In UTF-16 code units. A longer text rarely is one question. */
const MAX_LENGTH = 500

/** Other marks that may set off a text to work on. */
const PAYLOAD = /[：#]|(?<!\d):|:(?!\d)|\s[-–—]+\s|—/u

const GREETING = /^(?:hi|hello|hey)(?: there)?[,.!]? +/i
const THANKS = /(?<=[?.!]) +(?:thanks|thank you|cheers)(?: a lot| very much| so much| in advance)?[.!]*$/i
const SENTENCE_END = /[.!?。！？؟।]/u
const QUESTION_MARK = /[?？؟]$/u

const QUESTION_STARTS = words(
  `what what's whats who who's whose whom when where where's why how how's which is are was were do does did can could
  will would should may must has have am`,
)
const REQUEST_STARTS = words('explain describe define tell give show list name suggest recommend compare')
const POLITE_STARTS = words('please kindly')

/** These words announce a text to work on, which need not be marked. */
const ANNOUNCEMENT =
  /(?<!\p{L})(?:fix\w*|edit\w*|convert\w*|continue|complete|said|follow\w*|above|this|these|here|plural)(?!\p{L})/iu

/** Fields that contain no text for the model. Others, such as `prompt`, `tools` and `prediction`, may contain the task. */
const TEXTLESS_FIELDS = words(
  `model messages input max_tokens max_completion_tokens max_output_tokens temperature top_p top_k stop stop_sequences n
  stream stream_options user safety_identifier metadata prompt_cache_key prompt_cache_retention store service_tier
  verbosity reasoning_effort reasoning thinking tool_choice include modalities logit_bias cache_control system instructions`,
)

/** @param hasText Returns true for the value of a field that may contain text for the model. */
function hasTextFields({ value }: Native, hasText: (field: Json | undefined) => boolean): boolean {
  for (const name in value) if (!TEXTLESS_FIELDS.has(name) && hasText(value[name])) return true
  return false
}

function isTextOrStructure(field: Json | undefined): boolean {
  return typeof field === 'string' || (typeof field === 'object' && field !== null)
}

/** Returns true for a tool, a schema or a predicted answer. Its fields may repeat the text of the question. */
function isStructure(field: Json | undefined): boolean {
  if (Array.isArray(field)) return field.length > 0
  if (!isJsonObject(field)) return false
  const { type, format } = field
  return type !== 'text' && asObject(format)?.['type'] !== 'text'
}

/**
 * Returns true for one question or request of a few words that needs no other text: no system prompt, no earlier turn and
 * nothing to work on. Only then do two similar wordings ask for the same response.
 */
export function isStandAloneQuestion({ messages, native }: Pick<Prompt, 'messages' | 'native'>, text: string): boolean {
  if (messages.length !== 1 || messages[0]?.parts.length !== 1 || text.length > MAX_LENGTH) return false
  if (!isQuestion(text) || hasTextFields(native, isTextOrStructure) || PAYLOAD.test(text) || hasMarkedText(text))
    return false
  return !ANNOUNCEMENT.test(text) && !mentionsTextWork(text)
}

/** Returns true for one sentence that is a question or request. A second sentence may be a text to work on. */
function isQuestion(text: string): boolean {
  const sentence = text.replace(GREETING, '').replace(THANKS, '')
  const end = sentence.search(SENTENCE_END)
  if (end !== -1 && end !== sentence.length - 1) return false
  const [first = '', second = ''] = sentence.toLowerCase().split(' ')
  const start = POLITE_STARTS.has(first) ? second : first
  return QUESTION_MARK.test(sentence) || QUESTION_STARTS.has(start) || REQUEST_STARTS.has(start)
}

/**
 * Returns true if a system prompt or an earlier message may ask for work on the text, such as a translation, or if the text
 * is not a question and may therefore be data for it. A system prompt that says nothing of responses may ask for any work.
 */
export function hasTextTask({ messages, native }: Pick<Prompt, 'messages' | 'native'>, text: string): boolean {
  if (native.value['prompt'] !== undefined || hasTextFields(native, isStructure)) return true
  if (messages.length < 2) return false
  const last = lastUserIndex(messages)
  let length = 0
  return (
    !isQuestion(text) ||
    messages.some((message, index) => {
      if (index === last || (message.role !== 'system' && message.role !== 'user')) return false
      const other = textOfMessage(message)
      length += other.length
      if (length > MAX_SEARCHED_LENGTH) return true
      return message.role === 'system' ? !asksForResponses(other) : mayBeExample(other, messages[index + 1])
    })
  )
}

/** In UTF-16 code units. Searching some megabytes for words of work would block the event loop. */
const MAX_SEARCHED_LENGTH = 100_000

const GREETINGS = /^(?:hi|hello|hey|good (?:morning|afternoon|evening)|thanks|thank you|ok|okay)(?: [a-z]+)?[!.]*$/i
/** Number of words. A label, a count or a verdict is shorter than most answers. */
const MIN_RESPONSE_LENGTH = 5

/** Returns true if an earlier turn may ask for work on later texts, or show it: `wheres my bag` and `Where is my bag?` */
function mayBeExample(message: string, reply: Message | undefined): boolean {
  const text = message.trim()
  if (mayDescribeTask(text)) return true
  if (GREETINGS.test(text)) return false
  const response = reply?.role === 'assistant' ? textOfMessage(reply).trim() : ''
  const isAsked = isQuestion(text) || QUESTION_MARK.test(text)
  return !isAsked || QUESTION_MARK.test(response) || response.split(/\s+/).length < MIN_RESPONSE_LENGTH
}

/** Returns true if the text may be worked on, so that even white space at its ends and its Unicode form are significant. */
export function mayBeWorkedOn(prompt: Pick<Prompt, 'messages' | 'native'>, text: string): boolean {
  if (hasMarkedText(text) || PAYLOAD.test(text) || ANNOUNCEMENT.test(text)) return true
  return mentionsTextWork(text) || isAboutWording(text) || hasTextTask(prompt, text)
}
