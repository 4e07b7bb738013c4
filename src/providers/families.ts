/** Beginnings of model ids, of the last part where an id has slashes, and the family they belong to. */
export const FAMILY_PREFIXES: readonly (readonly [prefix: string, family: string])[] = [
  ['claude', 'claude'],
  ['gpt', 'gpt'],
  ['chatgpt', 'gpt'],
  ['o1', 'gpt'],
  ['o3', 'gpt'],
  ['o4', 'gpt'],
  ['gemini', 'gemini'],
  ['gemma', 'gemini'],
  ['llama', 'llama'],
  ['meta-llama', 'llama'],
  ['mistral', 'mistral'],
  ['ministral', 'mistral'],
  ['mixtral', 'mistral'],
  ['magistral', 'mistral'],
  ['codestral', 'mistral'],
  ['devstral', 'mistral'],
  ['pixtral', 'mistral'],
  ['qwen', 'qwen'],
  ['qwq', 'qwen'],
  ['deepseek', 'deepseek'],
  ['command', 'command'],
  ['grok', 'grok'],
  ['extractive', 'extractive'],
]

/** The family of a model id, or undefined for an unknown one. */
export function familyOf(id: string): string | undefined {
  const name = id.slice(id.lastIndexOf('/') + 1).toLowerCase()
  return FAMILY_PREFIXES.find(([prefix]) => name.startsWith(prefix))?.[1]
}
