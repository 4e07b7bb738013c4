import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { LISTING, publicExports, writeListing } from '../../scripts/api-listing.ts'

it('docs/api.md lists the public exports as they are; "npm run docs:api" writes it again', () => {
  expect(readFileSync(LISTING, 'utf8')).toBe(writeListing())
}, 60_000)

it('every public export has a doc comment', () => {
  const bare = [...publicExports()].flatMap(([entry, exports]) =>
    exports.filter(({ doc }) => doc === '').map(({ name }) => `${entry}: ${name}`),
  )

  expect(bare).toEqual([])
}, 60_000)
