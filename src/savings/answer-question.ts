import { textOfMessage } from '../core/prompt.ts'
import type { Turns } from './turns.ts'

const SAID =
  'said|say|told|tell|mention(?:ed)?|recommend(?:ed)?|suggest(?:ed)?|advise[ds]?|propose[ds]?|explain(?:ed)?|describe[ds]?|list(?:ed)?|named?|g[ai]ve(?:n)?|warn(?:ed)?|answer(?:ed)?|compared?|point(?:ed)? out|la(?:y|id) out|provided?|shared?|wr[io]te|came? up with|walk(?:ed)? me'
/** "What did you recommend …", "you once told me …", "remind me of the steps you listed", "your advice on …". */
const ASKS_FOR_ANSWER = new RegExp(
  String.raw`\b(?:did|do|had|have|that|what|which|how|as|once|when|where|why|and|said) you(?:['’]ve|['’]d)?(?: \w+){0,2} (?:${SAID})\b|\bremind me\b[^.?!]*\byou(?: \w+){0,2} (?:${SAID})\b|^\W*you(?: \w+){0,2} (?:${SAID})\b|\byour (?:\w+ )?(?:advice|answers?|recommendations?|suggestions?|explanations?|tips?|list|words)\b|\baccording to you\b`,
  'i',
)
/** A longer message is a document that happens to hold such words. */
const LONGEST_QUESTION = 1500

/** Returns true when the last user message asks what the assistant said earlier, often in other words. */
export function asksForAnswer({ live }: Pick<Turns, 'live'>): boolean {
  const [asking, ...steps] = live
  if (asking === undefined || steps.length > 0) return false
  const question = asking.messages.map(textOfMessage).join('\n')
  return question.length <= LONGEST_QUESTION && ASKS_FOR_ANSWER.test(question)
}
