import { toWordTokens, type Token } from './tokenize.ts'

/** `$1` in `to` is the text that the first group matched. */
interface Rewording {
  readonly pattern: RegExp
  readonly to: string
}

const CREATOR_VERBS: readonly (readonly [string, string])[] = [
  ['author|writer', 'wrote'],
  ['inventor', 'invented'],
  ['founder', 'founded'],
  ['discoverer', 'discovered'],
  ['painter', 'painted'],
  ['composer', 'composed'],
]
const MEASURES: readonly (readonly [string, string])[] = [
  ['tall', 'height'],
  ['old', 'age'],
  ['heavy', 'weight'],
  ['deep', 'depth'],
  ['wide', 'width'],
]
const REQUEST_NOUNS: readonly (readonly [string, string])[] = [
  ['summary', 'summarize'],
  ['explanation', 'explain'],
  ['description', 'describe'],
  ['list', 'list'],
]
/** Requires a verb after `to`, because "the way to the station" does not ask for a method. */
const VERB = '(?=(?!the |a |an |my |your |this |that |be )[a-z]+ [^ ])'

/** Rewordings by the first word of the question. They keep every word that could change the answer. */
const REWORDINGS: ReadonlyMap<string, readonly Rewording[]> = byFirstWord({
  what: [
    [`^what (?:is|would be) (?:the|a) (?:way|method|procedure|process) to ${VERB}`, 'how to'],
    [`^what are (?:the )?steps to ${VERB}`, 'how to'],
    [`^what (?:do|must) i (?:(?:need|have) to )?do to ${VERB}`, 'how to'],
    [`^what steps (?:do|must) i (?:(?:need|have) to )?(?:take|follow) to ${VERB}`, 'how to'],
    ['^what is the location of (.+)$', 'where is $1'],
    ['^what (?:does|do) (.+) cost$', 'what is the price of $1'],
    ['^what (?:type|sort) of ', 'what kind of'],
    ['^what (?:types|sorts) of ', 'what kinds of'],
    ['^what are (?:some )?examples of ', 'give examples of'],
    ['^what is the meaning of (.+)$', 'what does $1 mean'],
    ['^what are the differences between ', 'what is the difference between'],
  ],
  how: [
    ['^how (?:can|could) (?:one|someone|somebody|a person) (?=(?!not )[a-z]+ )', 'how to'],
    ['^how (?:might|may) i (?=(?!not )[a-z]+ )', 'how to'],
    ['^how much (?:does|do) (.+) cost$', 'what is the price of $1'],
    ['^how much (?:does|do) (.+) weigh$', 'what is the weight of $1'],
    ...MEASURES.map(([adjective, noun]): readonly [string, string] => [
      `^how ${adjective} (?:is|are) (.+)$`,
      `what is the ${noun} of $1`,
    ]),
    ['^how many (.+) are there (in|on|at|per) (?=.)', 'how many $1 are $2'],
    ['^how much time (does|do|did|will|would) ', 'how long $1'],
    ['^how (?:is|are) (.+) different from (.+)$', 'what is the difference between $1 and $2'],
    ['^how (?:does|do) (.+) differ from (.+)$', 'what is the difference between $1 and $2'],
  ],
  where: [['^where (is|are) (.+) (?:located|situated)$', 'where $1 $2']],
  who: CREATOR_VERBS.map(([noun, verb]): readonly [string, string] => [`^who is the (?:${noun}) of `, `who ${verb}`]),
  in: [['^in (?:what|which) year ', 'what year']],
  steps: [[`^steps to ${VERB}`, 'how to']],
  the: [[`^the steps to ${VERB}`, 'how to']],
  is: [
    ['^is it possible for me to ', 'can i'],
    ['^is there (?:any|a) way (?:for me )?to ', 'is it possible to'],
  ],
  would: [['^would it be possible to ', 'is it possible to']],
  am: [
    ['^am i able to ', 'can i'],
    ['^am i required to ', 'do i need to'],
  ],
  must: [['^must i (?!not )', 'do i need to']],
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
  sum: [['^sum up ', 'summarize']],
  difference: [['^difference between ', 'what is the difference between']],
  ...Object.fromEntries(
    ['give', 'write', 'provide', 'create', 'make', 'show', 'list'].map((verb) => [verb, requestRules(verb)]),
  ),
})

function requestRules(verb: string): readonly (readonly [string, string])[] {
  const examples: readonly [string, string] = [
    `^(?:give|show|provide|list) (?:me |us )?(?:some |a few )?examples of `,
    'give examples of',
  ]
  if (verb === 'list') return [examples]
  const requests = REQUEST_NOUNS.map(([noun, verbForm]): readonly [string, string] => [
    `^${verb} (?:me |us )?(?:a|an|the) ${noun} of `,
    verbForm,
  ])
  return [examples, ...requests]
}

function byFirstWord(
  rules: Readonly<Record<string, readonly (readonly [string, string])[]>>,
): ReadonlyMap<string, readonly Rewording[]> {
  const entries = Object.entries(rules).map(([first, group]): [string, readonly Rewording[]] => [
    first,
    group.map(([source, to]) => ({ pattern: new RegExp(source, 'd'), to })),
  ])
  return new Map(entries)
}

const MAX_REWORDINGS = 3

/** Rewrites equivalent forms of a question to one form, such as `how to` for `what are the steps to`. */
export function reword(items: readonly Token[]): readonly Token[] {
  let current = items
  for (let step = 0; step < MAX_REWORDINGS; step += 1) {
    const rules = REWORDINGS.get(current[0]?.key ?? '')
    if (rules === undefined) return current
    const next = applyFirst(rules, current, lineOf(current))
    if (next === undefined) return current
    current = next
  }
  return current
}

function applyFirst(rules: readonly Rewording[], items: readonly Token[], line: string): readonly Token[] | undefined {
  for (const { pattern, to } of rules) {
    const match = pattern.exec(line)
    const [first] = items
    if (match === null || first === undefined) continue
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

/** Joins the words with spaces for pattern matching. Placeholders replace numbers and exact tokens. */
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
