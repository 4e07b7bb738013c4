import type { Native, Prompt } from '../core/prompt.ts'
import { words } from './english.ts'

/** In UTF-16 code units. A longer text rarely is one question. */
const MAX_LENGTH = 500

/** Text to work on usually follows a colon, a dash, a line break or a bracket, or is quoted or code. */
const PAYLOAD =
  /[\n\r\t\v\f\u2028\u2029"`“”„‟«»‹›「」『』《》‘：({[\]})<>=;|\\*#_•]|(?<!\d):|:(?!\d)|\s[-–—]+\s|—|(?<![\p{L}\p{N}])['’]|['’](?![\p{L}\p{N}])|\.{2}|…/u

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

/** These words announce a text to work on, which need not be marked: `proofread i has a cat`. */
const TEXT_WORK =
  /(?<!\p{L})(?:translat\w*|proofread\w*|correct\w*|fix\w*|rewrit\w*|rephras\w*|paraphras\w*|reword\w*|summar\w*|edit\w*|classif\w*|categor\w*|label\w*|extract\w*|convert\w*|transcri\w*|shorten\w*|continue|complete|repeat\w*|echo\w*|sentiment\w*|tone|grammar\w*|spell\w*|sentences?|texts?|paragraphs?|passages?|phrases?|quot\w*|follow\w*|below|above|this|these|here|say|says|said|mean|means|meaning|language)(?!\p{L})/iu

/** Fields that contain no text for the model. Others, such as `prompt`, `tools` and `prediction`, may contain the task. */
const TEXTLESS_FIELDS = words(
  `model messages input max_tokens max_completion_tokens max_output_tokens temperature top_p top_k stop stop_sequences n
  stream stream_options user safety_identifier metadata prompt_cache_key prompt_cache_retention store service_tier
  verbosity reasoning_effort`,
)

function hasTextlessFields({ value }: Native): boolean {
  for (const name in value) {
    const field = value[name]
    const isText = typeof field === 'string' || (typeof field === 'object' && field !== null)
    if (isText && !TEXTLESS_FIELDS.has(name)) return false
  }
  return true
}

/**
 * Returns true for one question or request of a few words that needs no other text: no system prompt, no earlier turn and
 * nothing to work on. Only then do two similar wordings ask for the same answer.
 */
export function isStandAloneQuestion({ messages, native }: Pick<Prompt, 'messages' | 'native'>, text: string): boolean {
  if (messages.length !== 1 || messages[0]?.parts.length !== 1 || text.length > MAX_LENGTH) return false
  if (!hasTextlessFields(native) || PAYLOAD.test(text) || TEXT_WORK.test(text)) return false
  const sentence = text.replace(GREETING, '').replace(THANKS, '')
  const end = sentence.search(SENTENCE_END)
  // A second sentence may be the text to work on.
  if (end !== -1 && end !== sentence.length - 1) return false
  const [first = '', second = ''] = sentence.toLowerCase().split(' ')
  const start = POLITE_STARTS.has(first) ? second : first
  return QUESTION_MARK.test(sentence) || QUESTION_STARTS.has(start) || REQUEST_STARTS.has(start)
}
