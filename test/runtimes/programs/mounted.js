import { createGateway, openaiCompatible } from 'sluice'
import { extractive } from 'sluice/testing'

/** A gateway with a fixed key, for programs that consist of a line of the README. */
export function createMounted(basePath = '') {
  return createGateway({
    providers: [
      extractive(),
      openaiCompatible({ name: 'chat', baseUrl: UPSTREAM_URL, defaultPrice: { input: 1, output: 2 } }),
    ],
    basePath,
    governance: { virtual_keys: [{ name: 'example', value: 'a-secret-of-48-letters-made-for-this-test-alone-' }] },
    limits: { heartbeatMs: 100 },
  })
}
