/** Adds the system prompt of the version that the caller names in a header. */
import { GatewayError, type Plugin } from 'sluice'

export function promptVersion(versions: Readonly<Record<string, string>>, header = 'x-prompt-version'): Plugin {
  return {
    name: 'prompt-version',
    transformPrompt: ({ headers }, { messages }) => {
      const version = headers[header]
      if (version === undefined) return undefined
      const text = Object.hasOwn(versions, version) ? versions[version] : undefined
      if (text === undefined) {
        throw new GatewayError('invalid-request', `${header}: there is no prompt version "${version}".`, {
          param: header,
        })
      }
      return { messages: [{ role: 'system', parts: [{ type: 'text', text }] }, ...messages] }
    },
  }
}
