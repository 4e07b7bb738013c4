/** Replaces e-mail addresses in prompts, and restores them in the responses. The model never sees an address. */
import { createSlot, type ContentPart, type Message, type Part, type Plugin } from 'sluice'

const EMAIL = /[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g
const PLACEHOLDER = /\[email-\d+\]/g
/** An incomplete placeholder at the end of a text. The rest may be in the next part. */
const INCOMPLETE = /\[(?:e(?:m(?:a(?:i(?:l(?:-\d*)?)?)?)?)?)?$/

export function redactEmails(): Plugin {
  const addresses = createSlot<Map<string, string>>()

  return {
    name: 'redact-emails',
    transformPrompt: (exchange, { messages }) => {
      const placeholders = new Map<string, string>()
      const replace = (text: string): string =>
        text.replace(EMAIL, (address) => {
          const placeholder = placeholders.get(address) ?? `[email-${placeholders.size + 1}]`
          placeholders.set(address, placeholder)
          return placeholder
        })
      const redacted = messages.map((message) => redactMessage(message, replace))
      addresses.set(exchange, new Map([...placeholders].map(([address, placeholder]) => [placeholder, address])))
      return placeholders.size === 0 ? undefined : { messages: redacted }
    },
    transformResponse: (exchange) => {
      const known = addresses.get(exchange)
      if (known === undefined || known.size === 0) return undefined
      const restore = (text: string): string => text.replace(PLACEHOLDER, (found) => known.get(found) ?? found)
      return restoreTexts(restore)
    },
  }
}

function redactMessage(message: Message, replace: (text: string) => string): Message {
  return { ...message, parts: message.parts.map((part) => redactPart(part, replace)) }
}

function redactPart(part: Part, replace: (text: string) => string): Part {
  switch (part.type) {
    case 'text':
      return { ...part, text: replace(part.text) }
    case 'tool-call':
      return { ...part, input: replace(part.input) }
    case 'tool-result':
      return { ...part, content: part.content.map((nested) => redactPart(nested, replace)) }
    default:
      return part
  }
}

/** Holds back the end of a text that may be the beginning of a placeholder. */
function restoreTexts(restore: (text: string) => string) {
  let held: ContentPart | undefined
  const take = (): readonly ContentPart[] => {
    const taken = held === undefined ? [] : [held]
    held = undefined
    return taken
  }
  const heldText = (): string => (held === undefined ? '' : textOf(held))
  return {
    write: (part: ContentPart): readonly ContentPart[] => {
      const text = textOf(part)
      if (text === '') return [...take(), part]
      const isSameBlock = held === undefined || (held.type === part.type && indexOf(held) === indexOf(part))
      const before = isSameBlock ? [] : take()
      const whole = heldText() + text
      const end = INCOMPLETE.exec(whole)?.index ?? whole.length
      held = end < whole.length ? withText(part, whole.slice(end)) : undefined
      return end === 0 ? before : [...before, withText(part, restore(whole.slice(0, end)))]
    },
    end: take,
  }
}

function textOf(part: ContentPart): string {
  if (part.type === 'text-delta') return part.text
  return part.type === 'tool-call-delta' ? part.input : ''
}

function indexOf(part: ContentPart): number {
  return part.type === 'tool-call-delta' ? part.index : -1
}

function withText(part: ContentPart, text: string): ContentPart {
  if (part.type === 'text-delta') return { ...part, text }
  return part.type === 'tool-call-delta' ? { ...part, input: text } : part
}
