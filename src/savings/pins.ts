import { textOfMessage } from '../core/prompt.ts'
import { holdsUserWords, type Unit } from './turns.ts'

/**
 * How people give orders that bind all later turns. They share no words with the question that they bind, so no
 * ranking finds them.
 */
const STANDING: RegExp = new RegExp(
  [
    String.raw`\b(?:always|never|from now on|going forward|every time|each time|whenever|by default|keep in mind|be sure to)\b`,
    String.raw`\bremember (?:that|to|this|my|i|we)\b|\bdo(?:n['’]t| not) ever\b|\bno (?:more|longer)\b`,
    String.raw`\bi(?:['’]d)? (?:prefer|rather|hate|dislike|like (?:it|my|your|all|answers))\b|\bi(?:['’]m| am) (?:allergic|vegan|vegetarian)\b`,
    String.raw`\bi (?:want|need) (?:you to|all|every)\b|\bmy (?:name|pronouns|time ?zone|budget|deadline|preference)\b|\b(?:call|address) me\b`,
    String.raw`\b(?:must|should) (?:always|never|only)\b|\bonly (?:use|answer|reply|respond|write)\b|\buse only\b|\bstick to\b|\bavoid\b`,
    String.raw`\bplease (?:use|answer|reply|respond|write|keep|stick)\b|\b(?:answer|reply|respond|write) in\b`,
    String.raw`\bstop (?:using|doing|saying|adding)\b|\b(?:immer|niemals|ab jetzt|toujours|jamais|siempre|nunca)\b`,
    '从现在|以后|永远|总是|不要|今後|必ず|いつも',
  ].join('|'),
  'iu',
)

/** A longer message is a document that happens to say "always". */
const LONGEST_ORDER = 1500

/** True for a user's word that may bind later turns. */
export function holdsStandingInstruction(unit: Unit): boolean {
  if (unit.kind !== 'user' || !holdsUserWords(unit)) return false
  const text = unit.messages.map(textOfMessage).join('\n')
  return text.length <= LONGEST_ORDER && STANDING.test(text)
}
