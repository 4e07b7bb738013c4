import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../src/core/json.ts'
import { CHAT_USAGE_FIELDS, readUsage } from '../../../src/formats/usage.ts'

const outputOf = (usage: JsonObject): readonly (number | undefined)[] => {
  const read = readUsage({ prompt_tokens: 10, completion_tokens: 20, ...usage }, CHAT_USAGE_FIELDS)
  return [read?.outputTokens, read?.reasoningTokens]
}
const reasoning = (tokens: number): JsonObject => ({ completion_tokens_details: { reasoning_tokens: tokens } })

describe('reasoning tokens', () => {
  it.each<[string, JsonObject, readonly number[]]>([
    ['are part of the completion', { ...reasoning(5), total_tokens: 30 }, [20, 5]],
    ['are part of the completion where no total is given', reasoning(5), [20, 5]],
    ['are added where the total counts them beside the completion', { ...reasoning(5), total_tokens: 35 }, [25, 5]],
    ['are added even where they are more than the completion', { ...reasoning(50), total_tokens: 80 }, [70, 50]],
    ['are not added for a total one too small', { ...reasoning(5), total_tokens: 34 }, [20, 5]],
    ['are not added for a total one too large', { ...reasoning(5), total_tokens: 36 }, [20, 5]],
    ['are not added for a total that is not a count', { ...reasoning(5), total_tokens: '35' }, [20, 5]],
    ['never exceed the output', { ...reasoning(50), total_tokens: 30 }, [20, 20]],
    ['may be none', { ...reasoning(0), total_tokens: 30 }, [20, 0]],
    ['may be absent while the total differs', { total_tokens: 35 }, [20, 0]],
  ])('%s', (_name, usage, expected) => {
    expect(outputOf(usage)).toEqual(expected)
  })
})
