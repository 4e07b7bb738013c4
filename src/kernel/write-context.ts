/** What the writers of a format need of a request. */
import type { Runtime } from '../core/ports.ts'
import type { WriteContext } from '../formats/format.ts'
import type { Responded, Parsed } from './exchange.ts'

/** Returns true if only an instruction requests JSON, because the upstream's format has no setting for it. */
export function requestsJsonByInstruction({ prompt, route }: Pick<Responded, 'prompt' | 'route'>): boolean {
  if (prompt.settings.shape?.type !== 'json' || prompt.native.dialect === 'messages') return false
  return route?.provider.dialect === 'messages'
}

export type WrittenExchange = Pick<Parsed, 'prompt' | 'startedAt' | 'id' | 'requestBody'> &
  Partial<Pick<Parsed, 'plugins'>>

export function createWriteContext(
  { prompt, startedAt, id, requestBody, plugins }: WrittenExchange,
  { now }: Pick<Runtime, 'now'>,
): WriteContext {
  return {
    prompt: plugins?.receivedPrompt ?? prompt,
    createdSeconds: Math.floor(startedAt / 1000),
    now,
    requestId: id,
    requestBody,
  }
}
