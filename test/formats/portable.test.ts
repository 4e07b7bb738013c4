import { describe, expect, it } from 'vitest'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { portablePrompt } from '../../src/formats/portable.ts'

describe('a messages prompt for a lossy chat target', () => {
  it('reports each omitted message by its received position', () => {
    const file = { type: 'image', source: { type: 'file', file_id: 'file_1' } }
    const received = messagesClient.readPrompt({
      model: 'a/b',
      max_tokens: 100,
      messages: [
        { role: 'user', content: 'Hello' },
        { role: 'user', content: [file] },
        { role: 'assistant', content: 'Dear' },
      ],
    })

    const { prompt, ignored } = portablePrompt(received, { dialect: 'chat', model: {}, isLossy: true })

    expect(prompt.messages).toHaveLength(1)
    expect(ignored).toEqual(['messages[1]', 'messages[2]'])
  })
})
