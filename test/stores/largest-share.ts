import { expect, it } from 'vitest'
import type { Quota, Store } from '../../src/core/store.ts'

/** The share from which a full pool drops its oldest value. The pool of expiring values has at most 10 entries. */
export function dropsFromTheShareWithTheMostBytes(
  open: () => Store | Promise<Store>,
  sweep?: () => Promise<unknown>,
): void {
  it('drops the oldest value of the share with the most bytes, also if another share has more entries', async () => {
    const store = await open()
    const quota = (name: string): Quota => ({ name, maxEntries: 100, maxBytes: 100_000 })
    const write = (key: string, length: number): Promise<unknown> =>
      Promise.resolve(
        store.set(key, 'x'.repeat(length), { ttlMs: 60_000, quota: quota(key.slice(0, key.indexOf(':'))) }),
      )
    for (let n = 0; n < 3; n += 1) await write(`large:${n}`, 5_000)
    for (let n = 0; n < 7; n += 1) await write(`many:${n}`, 10)
    await write('many:7', 10)
    await sweep?.()

    expect(await store.list('large:', { limit: 100 })).toEqual(['large:1', 'large:2'])
    expect(await store.list('many:', { limit: 100 })).toHaveLength(8)
  })
}
