import { expect, it } from 'vitest'
import { joinContexts } from '../../../src/plugins/customers/join-contexts.ts'

it('what the application says about a caller wins over the headers of the request, field by field and tag by tag', () => {
  const application = { customer: 'a', tags: { feature: 'chat' } }
  const headers = { customer: 'h', user: 'u', tags: { feature: 'search', team: 't' } }
  expect(joinContexts(application, undefined, headers)).toEqual({
    customer: 'a',
    user: 'u',
    tags: { feature: 'chat', team: 't' },
  })
})
