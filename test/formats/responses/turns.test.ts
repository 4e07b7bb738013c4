import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../src/core/json.ts'
import type { StoredTurn, RecalledTurns } from '../../../src/formats/format.ts'
import { responsesClient } from '../../../src/formats/responses/client.ts'
import { failureOf } from '../chat/support.ts'

const { turns } = responsesClient
const message = { id: 'msg_77_0', type: 'message', role: 'assistant', content: [] }
const conversation = { input: [{ role: 'user', content: 'One' }], response: { id: 'resp_77', output: [message] } }
const texts = { input: JSON.stringify(conversation.input), response: JSON.stringify(conversation.response) }
const turn: StoredTurn = { id: 'resp_77', ...conversation, texts }
const nothing: RecalledTurns = {
  previousTurn: undefined,
  referencedResponses: new Map(),
  upstreamIds: new Set<string>(),
}
const reference = (id: string): JsonObject => ({ type: 'item_reference', id })

describe('the references of a body', () => {
  it('are the continued response and the responses of referenced items, without duplicates', () => {
    const input = [reference('msg_77_0'), { id: 'fc_77_1' }, reference('rs_8_8_2'), reference('elsewhere')]

    expect(turns.referencesIn({ previous_response_id: 'resp_1', input })).toEqual({
      previousTurnId: 'resp_1',
      referencedTurnIds: ['resp_77', 'resp_8_8'],
      foreignItemIds: ['elsewhere'],
    })
  })

  it('are empty in a body without references, and the body is not copied', () => {
    const body = { model: 'a/b', input: [{ role: 'user', content: 'One' }] }

    expect(turns.referencesIn(body)).toEqual({
      previousTurnId: undefined,
      referencedTurnIds: [],
      foreignItemIds: [],
    })
    expect(turns.resolveReferences(body, nothing)).toBe(body)
  })
})

describe('a recalled body', () => {
  it('contains the complete conversation instead of the reference', () => {
    const body = { model: 'a/b', previous_response_id: 'resp_77', instructions: 'Be brief.', input: 'Two' }

    expect(turns.resolveReferences(body, { ...nothing, previousTurn: turn })).toEqual({
      model: 'a/b',
      instructions: 'Be brief.',
      input: [{ role: 'user', content: 'One' }, message, { role: 'user', content: 'Two' }],
    })
  })

  it('does not require new input', () => {
    expect(turns.resolveReferences({ previous_response_id: 'resp_77' }, { ...nothing, previousTurn: turn })).toEqual({
      input: [{ role: 'user', content: 'One' }, message],
    })
  })

  it('contains items instead of references', () => {
    const input = [{ role: 'user', content: 'One' }, reference('msg_77_0'), { role: 'user', content: 'Two' }]
    const quoted = new Map([['resp_77', turn.response]])

    expect(turns.resolveReferences({ input }, { ...nothing, referencedResponses: quoted })).toEqual({
      input: [input[0], message, input[2]],
    })
  })

  it.each<[JsonObject, string, string | undefined]>([
    [{ previous_response_id: 'resp_1', input: 'Two' }, 'previous_response_id', 'previous_response_not_found'],
    [{ input: [reference('msg_1_0')] }, 'input[0]', undefined],
    [{ input: [reference('msg_77_5')] }, 'input[0]', undefined],
    [{ input: ['a', reference('elsewhere')] }, 'input[1]', undefined],
  ])('is rejected if the reference in %j is unknown', (body, param, code) => {
    const quoted = new Map([['resp_77', turn.response]])
    const { details, kind } = failureOf(() =>
      turns.resolveReferences(body, { ...nothing, referencedResponses: quoted }),
    )

    expect({ kind, param: details.param, code: details.code }).toEqual({ kind: 'invalid-request', param, code })
  })
})

describe('a stored turn', () => {
  const asked = { model: 'a/b', input: 'One' }
  const context = { prompt: responsesClient.readPrompt(asked), createdSeconds: 1, asked }

  it('contains the conversation and the answer of a body or of the last event of a stream', () => {
    const whole = JSON.stringify(turn.response)
    const event = JSON.stringify({ type: 'response.completed', response: turn.response })

    expect(turns.turnToStore(context, whole)).toEqual(turn)
    expect(turns.turnToStore(context, event)).toEqual(turn)
  })

  it('is not created with store: false', () => {
    expect(
      turns.turnToStore({ ...context, requestBody: { ...asked, store: false } }, '{"id":"resp_77"}'),
    ).toBeUndefined()
  })
})
