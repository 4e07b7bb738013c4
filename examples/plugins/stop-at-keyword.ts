/** Rejects prompts with a keyword, and stops a response at the first one. */
import { GatewayError, type Plugin } from 'sluice'

export function stopAtKeyword(keywords: readonly string[]): Plugin {
  const lowerCase = keywords.map((keyword) => keyword.toLowerCase())
  const longest = Math.max(...keywords.map(({ length }) => length))
  const firstKeyword = (text: string): number => {
    const found = lowerCase.map((keyword) => text.toLowerCase().indexOf(keyword)).filter((index) => index >= 0)
    return found.length === 0 ? -1 : Math.min(...found)
  }

  return {
    name: 'stop-at-keyword',
    onRequest: ({ prompt }) => {
      const text = JSON.stringify(prompt?.messages.map(({ parts }) => parts) ?? [])
      if (firstKeyword(text) === -1) return
      throw new GatewayError('invalid-request', 'The prompt contains a word that this service does not allow.', {
        code: 'keyword_not_allowed',
      })
    },
    transformResponse: () => {
      // The end of the text is held back, because a keyword may continue in the next part.
      let held = ''
      return {
        write: (part) => {
          if (part.type !== 'text-delta') {
            const flushed = held === '' ? [] : [{ type: 'text-delta', text: held } as const]
            held = ''
            return [...flushed, part]
          }
          held += part.text
          const keyword = firstKeyword(held)
          if (keyword !== -1) {
            return { parts: [{ type: 'text-delta', text: held.slice(0, keyword) }], finish: 'filtered' }
          }
          const end = Math.max(0, held.length - longest + 1)
          const text = held.slice(0, end)
          held = held.slice(end)
          return text === '' ? [] : { ...part, text }
        },
        end: () => (held === '' ? [] : [{ type: 'text-delta', text: held }]),
      }
    },
  }
}
