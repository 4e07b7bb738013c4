import { describe, expect, it } from 'vitest'
import type { Completion } from '../../../src/core/completion.ts'
import { isStorable, isTimeSensitive } from '../../../src/plugins/cache/cacheability.ts'
import { textResponse } from './fixture.ts'

describe('isStorable', () => {
  it('accepts a complete answer', () => {
    expect(isStorable(textResponse('Paris'))).toBe(true)
    expect(isStorable(textResponse('Paris', { finish: 'stop-sequence' }))).toBe(true)
    expect(
      isStorable(textResponse('x', { parts: [{ type: 'thinking', text: 'hm' }, ...textResponse('Paris').parts] })),
    ).toBe(true)
  })

  it.each(['length', 'tool-call', 'filtered', 'pause'] as const)('rejects an answer that ended with %s', (finish) => {
    expect(isStorable(textResponse('Paris', { finish }))).toBe(false)
  })

  it.each<[string, Completion]>([
    ['an empty answer', textResponse('  \n')],
    ['an answer without parts', textResponse('', { parts: [] })],
    ['an answer with reasoning only', textResponse('', { parts: [{ type: 'thinking', text: 'hm' }] })],
    [
      'a tool call',
      textResponse('', {
        parts: [...textResponse('ok').parts, { type: 'tool-call', id: '1', name: 'f', input: '{}' }],
      }),
    ],
    [
      'an answer with a part of one format only',
      textResponse('', {
        parts: [...textResponse('ok').parts, { type: 'opaque', native: { dialect: 'chat', value: {} } }],
      }),
    ],
    [
      'an answer with citations',
      textResponse('', {
        parts: [{ type: 'text', text: 'ok', native: { dialect: 'messages', value: { citations: [{ url: 'u' }] } } }],
      }),
    ],
    ['a refusal as text', textResponse("I'm sorry, but I can't help with that.")],
    ['a refusal in other words', textResponse('I cannot assist with this request.')],
    [
      'a refusal by its field',
      textResponse('No.', { native: { dialect: 'chat', value: { choices: [{ message: { refusal: 'No.' } }] } } }),
    ],
  ])('rejects %s', (_, completion) => {
    expect(isStorable(completion)).toBe(false)
  })

  it('accepts a long answer that begins like a refusal', () => {
    expect(isStorable(textResponse(`I can't help but wonder. ${'It is a long story. '.repeat(50)}`))).toBe(true)
  })
})

describe('isTimeSensitive', () => {
  it.each([
    'What is the weather in Rome?',
    'What is the latest version?',
    'Who is the current mayor?',
    'What day is it today?',
    'Wie ist das Wetter heute?',
    '¿Qué hora es ahora?',
    "Quel temps fait-il aujourd'hui ?",
    'What is the stock price of Apple?',
    'Who won last night?',
    'What day is it?',
    'Wer ist gerade Kanzler?',
    'Quels sont les derniers films ?',
    '¿Qué hora es?',
    'Che ore sono?',
    'Hoe laat is het?',
    'Который час?',
    '今何時ですか',
    '最近有什么新闻？',
    '지금 몇 시예요?',
    'كم الساعة؟',
    '今天天气怎么样？',
    'Какая сегодня погода?',
    `${'word '.repeat(5000)} as of now`,
  ])('%s', (text) => {
    expect(isTimeSensitive(text)).toBe(true)
  })

  it.each(['Who wrote Hamlet?', 'What is knowledge?', 'Explain the nowhere node', 'Was ist ein Baum?'])(
    'not: %s',
    (text) => {
      expect(isTimeSensitive(text)).toBe(false)
    },
  )
})
