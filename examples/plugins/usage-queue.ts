/** Sends a record of each request to a sink, in batches. A slow sink delays no request: the oldest records are dropped. */
import type { Plugin } from 'sluice'

export interface UsageRecord {
  readonly requestId: string
  readonly keyId: string | undefined
  readonly model: string | undefined
  readonly status: number
  /** In billionths of a dollar. */
  readonly billed: number
  readonly attempts: number
}

interface UsageQueueOptions {
  readonly send: (records: readonly UsageRecord[]) => Promise<void>
  readonly maxRecords?: number
}

export function usageQueue({ send, maxRecords = 1000 }: UsageQueueOptions): {
  readonly plugin: Plugin
  readonly dropped: () => number
} {
  const queue: UsageRecord[] = []
  const attempts = new Map<string, number>()
  let dropped = 0
  let sending: Promise<void> | undefined

  async function sendAll(): Promise<void> {
    while (queue.length > 0) await send(queue.splice(0, 100)).catch(() => {})
    sending = undefined
  }

  const plugin: Plugin = {
    name: 'usage-queue',
    onAttempt: ({ id }, { number }) => void attempts.set(id, number),
    onEnd: ({ id, keyId, model }, { status, bill }) => {
      queue.push({ requestId: id, keyId, model, status, billed: bill?.billed ?? 0, attempts: attempts.get(id) ?? 0 })
      attempts.delete(id)
      if (queue.length > maxRecords) {
        queue.shift()
        dropped++
      }
      sending ??= sendAll()
    },
    close: async () => {
      await sending
    },
  }
  return { plugin, dropped: () => dropped }
}
