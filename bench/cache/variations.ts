/** Variations of a question with the same meaning: typos, contractions and rewordings. */

export interface Variation {
  readonly kind: 'typo' | 'contraction' | 'rewording'
  readonly text: string
}

/** Returns a random-number generator (0 to 1) whose sequence depends only on the seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let value = Math.imul(state ^ (state >>> 15), state | 1)
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61)
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296
  }
}

const NEIGHBOR_KEYS: Readonly<Record<string, string>> = {
  q: 'wa',
  w: 'qes',
  e: 'wrd',
  r: 'etf',
  t: 'ryg',
  y: 'tuh',
  u: 'yij',
  i: 'uok',
  o: 'ipl',
  p: 'ol',
  a: 'qsz',
  s: 'adw',
  d: 'sfe',
  f: 'dgr',
  g: 'fht',
  h: 'gjy',
  j: 'hku',
  k: 'jli',
  l: 'kop',
  z: 'xas',
  x: 'zcs',
  c: 'xvd',
  v: 'cbf',
  b: 'vng',
  n: 'bmh',
  m: 'nj',
}

const CONTRACTIONS: readonly (readonly [RegExp, string])[] = [
  [/\b(what|who|where|when|how|that|there|it|he|she) is\b/i, "$1's"],
  [/\b(is|are|was|were|do|does|did|has|have|had|could|would|should) not\b/i, "$1n't"],
  [/\b(?:cannot|can not)\b/i, "can't"],
  [/\bwill not\b/i, "won't"],
  [/\b(I) am\b/, "$1'm"],
  [/\b(you|we|they) are\b/i, "$1're"],
  [/\b(I|you|we|they) have\b/, "$1've"],
  [/\b(I|you|he|she|it|we|they) will\b/, "$1'll"],
]

const FRAMES: readonly ((text: string) => string | undefined)[] = [
  (text) => `Please ${withLowerFirst(text)}`,
  (text) => `Hi, ${withLowerFirst(text)}`,
  (text) => (isQuestion(text) ? `Can you tell me ${withLowerFirst(text)}` : undefined),
  (text) => (isQuestion(text) ? `I'd like to know: ${withLowerFirst(text)}` : undefined),
  (text) => (isInstruction(text) ? `Could you ${withLowerFirst(text)}` : undefined),
  (text) => (isInstruction(text) ? `I want you to ${withLowerFirst(text)}` : undefined),
  (text) => `${text.replace(/[.?!]+$/, '')}, please${text.endsWith('?') ? '?' : '.'}`,
  (text) => `${text} Thanks!`,
  (text) => replaced(text, /\b(?:the|a|an) (?=[a-z])/i, ''),
  (text) => replaced(text, /\bHow (?:can|do) I\b/, 'How to'),
  (text) => replaced(text, /^(What|Who|Where|How) (is|are|does|do) /, '$1 exactly $2 '),
  (text) => replaced(text, /^(Is|Are|Was|Were|Did|Does|Do|Can) (it|he|she|they|you|I|we) /, '$1 $2 really '),
  (text) => replaced(text, /\b(buy|begin|movie|fix|help|difficult|large)\b/, (word) => SYNONYMS[word] ?? word),
  (text) => text.toLowerCase().replace(/[.?!]+$/, ''),
  (text) => `${text.toUpperCase().slice(0, 1)}${text.slice(1).replace(/[?]$/, '??')}`,
]

const SYNONYMS: Readonly<Record<string, string>> = {
  buy: 'purchase',
  begin: 'start',
  movie: 'film',
  fix: 'repair',
  help: 'assist',
  difficult: 'hard',
  large: 'big',
}

/** Returns at most one variation of each kind. */
export function variationsOf(text: string, random: () => number): readonly Variation[] {
  const typo = withTypo(text, random)
  const short = CONTRACTIONS.map(([long, form]) => text.replace(long, form)).find((form) => form !== text)
  const frames = FRAMES.map((frame) => frame(text)).filter((frame) => frame !== undefined && frame !== text)
  const reworded = frames[Math.floor(random() * frames.length)]
  return [
    ...(typo === undefined ? [] : [{ kind: 'typo', text: typo } as const]),
    ...(short === undefined ? [] : [{ kind: 'contraction', text: short } as const]),
    ...(reworded === undefined ? [] : [{ kind: 'rewording', text: reworded } as const]),
  ]
}

function withTypo(text: string, random: () => number): string | undefined {
  const words = [...text.matchAll(/\b[a-zA-Z]{4,}\b/g)]
  const chosen = words[Math.floor(random() * words.length)]
  if (chosen === undefined) return undefined
  const [word] = chosen
  const at = 1 + Math.floor(random() * (word.length - 2))
  const letter = word[at] ?? ''
  const typos = [
    word.slice(0, at) + (word[at + 1] ?? '') + letter + word.slice(at + 2),
    word.slice(0, at) + word.slice(at + 1),
    word.slice(0, at) + letter + word.slice(at),
    word.slice(0, at) + (NEIGHBOR_KEYS[letter.toLowerCase()]?.[0] ?? letter) + word.slice(at + 1),
  ]
  const typo = typos[Math.floor(random() * typos.length)] ?? word
  return typo === word ? undefined : text.slice(0, chosen.index) + typo + text.slice(chosen.index + word.length)
}

function isQuestion(text: string): boolean {
  return /^(?:what|who|where|when|why|how|which)\b/i.test(text)
}

function isInstruction(text: string): boolean {
  return /^(?:summarize|explain|describe|list|give|show|find|write|compare|help)\b/i.test(text)
}

function withLowerFirst(text: string): string {
  return /^(?:I\b|[A-Z][A-Z])/.test(text) ? text : text.slice(0, 1).toLowerCase() + text.slice(1)
}

function replaced(text: string, pattern: RegExp, by: string | ((match: string) => string)): string | undefined {
  const other = typeof by === 'string' ? text.replace(pattern, by) : text.replace(pattern, by)
  return other === text ? undefined : other
}
