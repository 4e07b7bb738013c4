const WORDS =
  'ledger harbour invoice glacier the of and compiler settles between orchards 4711 src/index.ts never always'.split(
    ' ',
  )

/** A message in the chat format. */
export interface ChatTurn {
  readonly role: 'user' | 'assistant'
  readonly content: string
}

/** Returns words in an order that depends on the seed, so that no text of another round is cached. */
export function wordsOf(seed: number, count: number): string {
  let state = seed * 7919 + 17
  const out: string[] = []
  for (let at = 0; at < count; at++) {
    state = (state * 48_271) % 2_147_483_647
    out.push(`${WORDS[state % WORDS.length]}${at % 11 === 10 ? '.\n' : ''}`)
  }
  return out.join(' ')
}

/** Returns a chat of about 870 tokens per turn. Chats with different seeds share no text. */
export function generatedChat(seed: number, turns: number): ChatTurn[] {
  return Array.from({ length: turns }, (_, at) => ({
    role: at % 2 === 0 ? 'user' : 'assistant',
    content: at % 2 === 0 ? `${wordsOf(seed * 1000 + at, 40)}?` : wordsOf(seed * 1000 + at, 1050),
  }))
}
