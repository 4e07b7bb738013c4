import { afterEach, describe, expect, it, vi } from 'vitest'
import { type JsonObject, parseObject } from '../../src/core/json.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

/** Returns the number of calls of `JSON.parse` that throw. Each takes as long as 100 that do not. */
function countFailures(run: () => void): number {
  const { parse } = JSON
  let failures = 0
  vi.spyOn(JSON, 'parse').mockImplementation((...given) => {
    try {
      return parse(...given) as unknown
    } catch (error) {
      failures += 1
      throw error
    }
  })
  run()
  return failures
}

describe('text that is expected to be a JSON object', () => {
  it('is parsed if it begins as an object, after any blanks', () => {
    expect(parseObject('{"a":1}')).toEqual({ a: 1 })
    expect(parseObject(' \r\n\t{"a":1} ')).toEqual({ a: 1 })
    expect(parseObject('{"a":')).toBeUndefined()
  })

  it.each(['', ' ', 'Done.', '[{}]', '"{}"', 'null', '12', '\u{feff}'])('is not parsed if it is %j', (text) => {
    const parse = vi.spyOn(JSON, 'parse')
    expect(parseObject(text)).toBeUndefined()
    expect(parse).not.toHaveBeenCalled()
  })

  it.each([
    ['messages', messagesUpstream],
    ['gemini', geminiUpstream],
  ])('costs no failed parse in calls and results for the %s format', (_, upstream) => {
    const call = (id: string, input: string): readonly JsonObject[] => [
      { role: 'assistant', tool_calls: [{ id, type: 'function', function: { name: 'a', arguments: input } }] },
      { role: 'tool', tool_call_id: id, content: 'Done.' },
    ]
    const calls = [call('c1', 'look it up'), call('c2', ''), call('c3', '{}')].flat()
    const prompt = chatClient.readPrompt({ model: 'a/b', messages: [{ role: 'user', content: 'a' }, ...calls] })
    expect(countFailures(() => void upstream.writePrompt(prompt, 'b'))).toBe(0)
  })
})
