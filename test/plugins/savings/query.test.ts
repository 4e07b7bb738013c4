import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/core/prompt.ts'
import { queryOf } from '../../../src/plugins/savings/conversation.ts'
import { splitConversation } from '../../../src/plugins/savings/segments.ts'
import { termsOf } from '../../../src/plugins/savings/keywords.ts'
import { text } from './conversation.ts'

const user = (words: string): Message => ({ role: 'user', parts: [text(words)] })
const assistant = (words: string): Message => ({ role: 'assistant', parts: [text(words)] })
const call: Message = { role: 'assistant', parts: [{ type: 'tool-call', id: 'c1', name: 'read', input: '{}' }] }
const result: Message = {
  role: 'tool',
  parts: [{ type: 'tool-result', callId: 'c1', content: [text('lines')], failed: false }],
}
const BEFORE = [
  user('How do orchards survive frost?'),
  assistant('Orchards use sprinklers, sprinklers and more sprinklers; frost melts.'),
]

function weights(...live: Message[]): (word: string) => number | undefined {
  const query = queryOf(splitConversation([...BEFORE, ...live]))
  return (word) => query.get(termsOf(word)[0] ?? -1)
}

describe('the query', () => {
  it.each(['And the second one?', 'Why is that?', 'Does it hurt them?'])(
    'of the follow-up "%s" takes each term of the exchange before once, at a low weight',
    (question) => {
      const weightOf = weights(user(question))
      expect(weightOf('orchards')).toBe(0.4)
      expect(weightOf('sprinklers')).toBe(0.15)
    },
  )

  it('of a short question without references contains no term of the earlier answer', () => {
    const weightOf = weights(user('Where did Ada store the violin?'))
    expect(weightOf('violin')).toBe(1)
    expect(weightOf('orchards')).toBe(0.3)
    expect(weightOf('sprinklers')).toBeUndefined()
  })

  it('never weights an earlier term above the terms of the question', () => {
    const weightOf = weights(user('And frost there?'))
    expect(weightOf('frost')).toBe(1)
    expect(weightOf('melts')).toBe(0.15)
  })

  it('contains no earlier question within the steps of an agent', () => {
    const weightOf = weights(user('Why is that?'), call, result)
    expect(weightOf('orchards')).toBeUndefined()
    expect(weightOf('sprinklers')).toBeUndefined()
  })
})
