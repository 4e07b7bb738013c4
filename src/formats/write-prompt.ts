import { replaceModel } from './parse-body.ts'
import type { Changes } from './settings.ts'
import { GatewayError } from '../core/errors.ts'
import type { Json } from '../core/json.ts'
import type { DocumentPart, Native, Prompt, Source, Tool } from '../core/prompt.ts'
import type { WrittenPrompt } from './format.ts'

/** Formats with translation that is loaded on demand. Other writers always contain it. */
export type TranslatedDialect = 'openai' | 'anthropic'

/** Writes a prompt of another format. Throws `invalid-request` for required content that the format cannot express. */
export type TranslatePrompt = (prompt: Prompt, model: string) => WrittenPrompt

let translators: Readonly<Record<TranslatedDialect, TranslatePrompt>> | undefined

/** Sets the functions that `translate` calls. `translators.ts` calls this when it is loaded on demand. */
export function setTranslators(loaded: Readonly<Record<TranslatedDialect, TranslatePrompt>>): void {
  translators = loaded
}

export function translate(dialect: TranslatedDialect, prompt: Prompt, model: string): WrittenPrompt {
  if (translators === undefined) throw new GatewayError('internal', 'Translation is not loaded.')
  return translators[dialect](prompt, model)
}

/** Returns the error for content that the target format cannot express. `what` completes "… cannot be sent". */
export type RefuseContent = (param: string, what: string, details?: Json) => GatewayError

export function refuseContentFor(target: string): RefuseContent {
  return (param, what, details) =>
    new GatewayError(
      'invalid-request',
      `${param}: ${what} cannot be sent to ${target}. Remove it, or choose a model that supports it.`,
      { param, ...(details === undefined ? {} : { details }) },
    )
}

/** Returns the URL of a source, or a data URL for bytes. Throws the error of `refuse` for the id of a stored file. */
export function urlOf(source: Source, refuse: (what: string) => GatewayError): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw refuse('a file id of another vendor')
  }
}

/** Returns the title and the text of a document, or undefined for a document that is not text. */
export function documentText({ source, title }: DocumentPart): string | undefined {
  if (source.type !== 'text') return undefined
  return title === undefined ? source.text : `${title}\n\n${source.text}`
}

/** Returns true if every item was read from the value at its index, so that the list is unchanged. */
export function isAsReceived(items: readonly { readonly native?: Native }[], before: readonly Json[]): boolean {
  return items.length === before.length && items.every(({ native }, index) => native?.value === before[index])
}

/** Returns the field `tools` if the tools of the prompt differ from the tools of the body. */
export function changedTools(before: readonly Json[], tools: readonly Tool[], write: (tool: Tool) => Json): Changes {
  if (isAsReceived(tools, before)) return {}
  return { tools: tools.length === 0 ? undefined : tools.map(write) }
}

/**
 * Writes the body of a prompt in its own format. Sends the received bytes with the model replaced and new fields added.
 * Serializes the body again if a received field changes.
 */
export function writeOwnBody({ native }: Prompt, model: string, changes: Changes): WrittenPrompt {
  const { value, received } = native
  const onlyAdds = Object.keys(changes).every((name) => changes[name] !== undefined && value[name] === undefined)
  const canSplice = received !== undefined && onlyAdds
  const body = canSplice ? replaceModel(received, model, changes) : JSON.stringify({ ...value, ...changes, model })
  return { body, ignored: [] }
}
