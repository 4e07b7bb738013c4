import { QUESTION_WORDS, words } from './english.ts'
import { isPlainWord, toWordTokens, type Token } from './tokenize.ts'

/** Maximum number of tokens that a pattern is matched against. */
export const MAX_SEARCHED_TOKENS = 40

export const QUESTION_WORD = '(?:what|who|whom|whose|when|where|why|how|which)'

/** A pattern and its replacement, in which `$1` is the text that the first group matched. */
type Rewording<Pattern = string> = readonly [Pattern, string]

const CREATOR_VERBS: readonly Rewording[] = [
  ['author', 'wrote'],
  ['inventor', 'invented'],
  ['founder', 'founded'],
  ['discoverer', 'discovered'],
  ['composer', 'composed'],
]
const MEASURES: readonly Rewording[] = [
  ['tall', 'height'],
  ['old', 'age'],
]
/** Excludes `the` and similar words after `to`, because "the way to the station" does not ask for a method. */
const VERB = '(?=(?!the |a |an |my |your |this |that |be )[a-z]+ [^ ])'

const EXAMPLES = '^(?:give|show|list) (?:me |us )?(?:some |a few )?examples of '

/** Rewordings by the first word of the question. They keep every word that could change the response. */
const REWORDINGS: ReadonlyMap<string, readonly Rewording<RegExp>[]> = byFirstWord({
  what: [
    [`^what (?:is|would be) (?:the|a) (?:way|method|procedure|process) to ${VERB}`, 'how to'],
    [`^what are (?:the )?steps to ${VERB}`, 'how to'],
    [`^what steps (?:do|must) i (?:(?:need|have) to )?(?:take|follow) to ${VERB}`, 'how to'],
    ['^what is the location of (.+)$', 'where is $1'],
    ['^what (?:does|do) (.+) cost$', 'what is the price of $1'],
    ['^what are (?:some )?examples of ', 'give examples of'],
    ['^what are the differences between ', 'what is the difference between'],
  ],
  how: [
    ['^how much (?:does|do) (.+) cost$', 'what is the price of $1'],
    ['^how much (?:does|do) (.+) weigh$', 'what is the weight of $1'],
    ...MEASURES.map(([adjective, noun]): Rewording => [
      `^how ${adjective} (?:is|are) (.+)$`,
      `what is the ${noun} of $1`,
    ]),
    ['^how many (.+) are there (in|on|at|per) (?=.)', 'how many $1 are $2'],
    ['^how much time (does|do|did|will|would) ', 'how long $1'],
    ['^how (?:is|are) (.+) different from (.+)$', 'what is the difference between $1 and $2'],
    ['^how (?:does|do) (.+) differ from (.+)$', 'what is the difference between $1 and $2'],
  ],
  where: [['^where (is|are) (.+) (?:located|situated)$', 'where $1 $2']],
  who: CREATOR_VERBS.map(([noun, verb]): Rewording => [`^who is the (?:${noun}) of `, `who ${verb}`]),
  in: [['^in (?:what|which) year ', 'what year']],
  steps: [[`^steps to ${VERB}`, 'how to']],
  the: [[`^the steps to ${VERB}`, 'how to']],
  is: [['^is there (?:any|a) way (?:for me )?to ', 'is it possible to']],
  would: [['^would it be possible to ', 'is it possible to']],
  do: [['^do (i|you|we|they) have to ', 'do $1 need to']],
  does: [['^does (.+) have to ', 'does $1 need to']],
  explain: [
    ['^explain (.+) to me$', 'explain $1'],
    ['^explain (?:the )?differences? between ', 'what is the difference between'],
  ],
  describe: [
    ['^describe (.+) (?:to|for) me$', 'describe $1'],
    ['^describe (?:the )?differences? between ', 'what is the difference between'],
  ],
  difference: [['^difference between ', 'what is the difference between']],
  give: [[EXAMPLES, 'give examples of']],
  show: [[EXAMPLES, 'give examples of']],
  list: [[EXAMPLES, 'give examples of']],
})

function byFirstWord(
  rules: Readonly<Record<string, readonly Rewording[]>>,
): ReadonlyMap<string, readonly Rewording<RegExp>[]> {
  return new Map(
    Object.entries(rules).map(([first, group]) => [
      first,
      group.map(([pattern, to]): Rewording<RegExp> => [new RegExp(pattern, 'd'), to]),
    ]),
  )
}

/** Words that begin the subject of a clause: `what the price is`. In `what problems were found`, `what` begins it. */
const SUBJECT_OPENINGS = words('the a an my your his her its our their this that these those i you he she it we they')

/** After these verbs, `how do I` does not ask for a method: `how do I look` is not `how to look`. */
const STATES = 'look|feel|seem|sound|appear|smell|taste|compare|rank|differ|score|rate|matter|benefit|do|fit|know|not'

/** Verbs of tasks: elsewhere, `how can I` may ask whether something is possible, or `how do I` how something happens. */
const TASKS =
  'install|uninstall|configure|create|delete|remove|convert|reset|replace|rename|export|import|download|upload|print|calculate|compile|' +
  'deploy|enable|disable|update|upgrade|cancel|connect|disconnect|repair|clean|boil|bake|roast|draw|paint|knit|fold|change|merge|split'

/** Excludes all other modal verbs, which ask for something else. */
const HOW_TO = new RegExp(`^how (?:do i (?!(?:${STATES})(?: |$))(?=[a-z])|can i (?=(?:${TASKS}) [a-z]))`)

/** @param isClause True if the text may have the word order of a clause, as `what the price is` after `tell me`. */
export function rewordQuestion(items: readonly Token[], isClause: boolean): readonly Token[] {
  const form = normalizeHowTo(isClause ? toDirectQuestion(items) : items)
  const isOneSentence = form.length <= MAX_SEARCHED_TOKENS && !form.some((item) => item.kind === 'stop')
  return isOneSentence ? reword(form) : form
}

/** Returns `what is the price` for `what the price is`, `why do cats purr` for `why cats purr`. */
function toDirectQuestion(items: readonly Token[]): readonly Token[] {
  const [first, second, third] = items
  if (first === undefined || second === undefined || !QUESTION_WORDS.has(first.key)) return items
  if (items.some((item) => item.kind === 'stop')) return items
  if (third !== undefined && PRONOUNS.has(second.key) && MODALS.has(third.key)) {
    return [first, third, second, ...items.slice(3)]
  }
  const verb = items.find(isFormOfBe)
  if (verb === undefined) return insertDo(items)
  const hasSubject = SUBJECT_OPENINGS.has(second.key) || !isPlainWord(second) || verb === items.at(-1)
  if (!hasSubject || items.filter(isFormOfBe).length > 1) return items
  return [first, verb, ...items.slice(1).filter((item) => item !== verb)]
}

const PRONOUNS = words('i you he she it we they one')
const MODALS = words('can could should will would must may might')
const AUXILIARIES = new Set([...MODALS, ...words('do does did have has had not to be')])
/** Excludes `who` and `what`, which may be the subject and then need no `do`. */
const ADVERBS = words('why where when')

function insertDo(items: readonly Token[]): readonly Token[] {
  const [first] = items
  if (first === undefined || !ADVERBS.has(first.key) || items.some((item) => AUXILIARIES.has(item.key))) return items
  return [...toWordTokens(first, [first.key, 'do']), ...items.slice(1)]
}

function isFormOfBe(item: Token): boolean {
  return item.key === 'is' || item.key === 'are' || item.key === 'was' || item.key === 'were'
}

function normalizeHowTo(items: readonly Token[]): readonly Token[] {
  const [first] = items
  if (first?.key !== 'how' || !HOW_TO.test(lineOf(items.slice(0, 5)))) return items
  return [...toWordTokens(first, ['how', 'to']), ...items.slice(3)]
}

const MAX_REWORDINGS = 3

function reword(items: readonly Token[]): readonly Token[] {
  let current = items
  for (let count = 0; count < MAX_REWORDINGS; count += 1) {
    const next = applyFirst(REWORDINGS.get(current[0]?.key ?? '') ?? [], current)
    if (next === undefined) return current
    current = next
  }
  return current
}

function applyFirst(rules: readonly Rewording<RegExp>[], items: readonly Token[]): readonly Token[] | undefined {
  const [first] = items
  if (first === undefined || rules.length === 0) return undefined
  const line = lineOf(items)
  for (const [pattern, to] of rules) {
    const match = pattern.exec(line)
    if (match === null) continue
    const tokensIn = (group: number): readonly Token[] => {
      const [from, end] = match.indices?.[group] ?? [0, 0]
      const start = countWords(line.slice(0, from))
      return items.slice(start, start + countWords(line.slice(from, end)))
    }
    const replacement = to
      .split(' ')
      .flatMap((word) => (word.startsWith('$') ? tokensIn(Number(word.slice(1))) : toWordTokens(first, [word])))
    return [
      ...replacement.map((token, index) => ({ ...token, startsSentence: index === 0 })),
      ...items.slice(countWords(match[0])),
    ]
  }
  return undefined
}

export function lineOf(items: readonly Token[]): string {
  let line = ''
  for (const item of items) {
    const word = item.kind === 'exact' ? '\u0001' : item.kind === 'number' ? '0' : item.key
    line = line === '' ? word : `${line} ${word}`
  }
  return line
}

export function countWords(text: string): number {
  return text.split(' ').filter((word) => word !== '').length
}
