import type { Prompt } from '../../src/core/prompt.ts'
import type { Meter } from '../../src/core/ports.ts'

/** The naive method: removes whole messages from the middle until the prompt is within the cap. */
export async function cutMiddle(prompt: Prompt, cap: number, meter: Meter): Promise<Prompt> {
  const system = prompt.messages.filter((message) => message.role === 'system')
  const rest = prompt.messages.filter((message) => message.role !== 'system')
  const body = rest.slice(0, -1)
  const last = rest.slice(-1)
  const sizes = await Promise.all(body.map((message) => meter.countMessage(message)))
  let left = cap - (await meter.countPrompt({ ...prompt, messages: [...system, ...last] }))
  let head = 0
  let tail = body.length
  for (let half = left / 2; head < tail && (sizes[head] ?? 0) <= half; head++) {
    half -= sizes[head] ?? 0
    left -= sizes[head] ?? 0
  }
  for (; tail > head && (sizes[tail - 1] ?? 0) <= left; tail--) left -= sizes[tail - 1] ?? 0
  return { ...prompt, messages: [...system, ...body.slice(0, head), ...body.slice(tail), ...last] }
}
