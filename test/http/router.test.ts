import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import { createRouter } from '../../src/http/router.ts'

const route = createRouter([
  { method: 'GET', path: '/v1/models', handle: 'list' },
  { method: 'GET', path: '/v1/models/*id', handle: 'get' },
  { method: 'POST', path: '/v1/messages', handle: 'create' },
  { method: 'GET', path: '/api/keys/limits', handle: 'limits' },
  { method: 'PUT', path: '/api/keys/:key_id', handle: 'update' },
  { method: 'DELETE', path: '/api/keys/:key_id', handle: 'delete' },
])

function failureOf(method: string, path: string): GatewayError {
  try {
    route(method, path)
  } catch (error) {
    if (GatewayError.is(error)) return error
  }
  throw new Error('the router found something')
}

describe('the router', () => {
  it.each([
    ['GET', '/v1/models', 'list', {}],
    ['HEAD', '/v1/models', 'list', {}],
    ['GET', '/v1/models/openai%2Fgpt-5', 'get', { id: 'openai/gpt-5' }],
    ['GET', '/v1/models/openai/org/model', 'get', { id: 'openai/org/model' }],
    ['GET', '/api/keys/limits', 'limits', {}],
    ['PUT', '/api/keys/key_1', 'update', { key_id: 'key_1' }],
    ['DELETE', '/api/keys/key%201', 'delete', { key_id: 'key 1' }],
  ])('finds for %s %s the endpoint %s', (method, path, handle, variables) => {
    expect(route(method, path)).toEqual({ handle, variables })
  })

  it.each([
    '/',
    '',
    '/v1',
    '/v1/',
    '/V1/models',
    '//v1/models',
    '/v1//models',
    '/v1/models/',
    '/api/keys/',
    '/api/keys/a/b',
    '/v1/models;x',
    '/api/keys/%ff',
  ])('answers 404 for %s', (path) => {
    expect(failureOf('GET', path).kind).toBe('not-found')
  })

  it('answers 405 with the methods of the path', () => {
    expect(failureOf('PATCH', '/api/keys/1').details.allow).toEqual(['PUT', 'DELETE'])
    expect(failureOf('POST', '/v1/models').details.allow).toEqual(['GET', 'HEAD'])
  })

  it('repeats at most a hundred printable characters of a path', () => {
    expect(failureOf('GET', `/${'é\n'.repeat(5000)}`).message).toMatch(/^The path \/\?{99} does not exist\. /)
  })
})
