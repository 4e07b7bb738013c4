import { describe, expect, it } from 'vitest'
import { createGateway } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'

describe.each(['savings', 'cache'] as const)('the price of the embedder of %s', (option) => {
  const create = (price: number): (() => unknown) => {
    const embedder = { name: 'e', dimensions: 1, price, embed: () => [new Float32Array(1)] }
    return () => createGateway({ providers: [extractive()], [option]: { embedder } })
  }

  it.each([NaN, -1, Infinity, 20_000])('is rejected by its path if it is %d', (price) => {
    expect(create(price)).toThrow(new RegExp(`${option}\\.embedder\\.price: expected dollars per million tokens`))
  })

  it.each([0, 0.02])('may be %d', (price) => {
    expect(create(price)).not.toThrow()
  })
})
