import { describe, expect, it } from 'vitest'
import type { Json } from '../../src/core/json.ts'
import { redactDetails, redactText } from '../../src/formats/redact-text.ts'
import { fc } from '../support/properties.ts'

describe('parts of an upstream message that help a caller', () => {
  it.each([
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130,001 tokens.",
    'max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022',
    "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead.",
    "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.",
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    '`tool_use` ids were found without `tool_result` blocks immediately after: toolu_01A09q90qw90lq917835lq9.',
    'The model `gpt-4.1-mini` does not exist or you do not have access to it.',
    'The model meta-llama/Llama-3.3-70B-Instruct-Turbo is gone, use Qwen/Qwen2.5-VL-72B or models/gemini-1.5-pro',
    'Please switch to gpt-4o-2024-08-06, o3-mini or mixtral-8x22b',
    'media_type must be one of image/png, image/jpeg; got text/plain',
    "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    'thinking.budget_tokens: Input should be greater than or equal to 1024',
    'It costs $0.12 (50%), i.e. 1e-9 of 1.5M.',
    "Unrecognized key: 'temperatur'",
    'The server had an error while processing your request.',
    '该模型不支持参数 temperature，请检查。共128000个token。',
    'Größe überschritten – bitte kürzen',
    '[{"msg":"bad"}]',
  ])('are unchanged: %s', (text) => {
    expect(redactText(text)).toBe(text)
  })
})

describe("parts of an upstream message about the operator's network", () => {
  it.each([
    ['postgres://user:pw@host/db', '[removed]'],
    ['could not connect to postgres://user:p w@db-1:5432/x', 'could not connect to [removed] [removed]'],
    ['see https://platform.example.com/docs', 'see [removed]'],
    ['connect ECONNREFUSED 10.0.0.5:5432', 'connect ECONNREFUSED [removed]'],
    ['getaddrinfo ENOTFOUND database', 'getaddrinfo [removed] [removed]'],
    ['dial tcp: lookup vllm on 10.0.0.53:53: no such host', 'dial tcp: lookup [removed] on [removed] no such host'],
    ['vllm.cluster.internal refused', '[removed] refused'],
    ['api.example.com failed', '[removed] failed'],
    ['db-primary is down', '[removed] is down'],
    ['connected to postgres-1', 'connected to [removed]'],
    ['server vllm7 failed', 'server [removed] failed'],
    ['localhost refused', '[removed] refused'],
    ['backend:443 refused', '[removed] refused'],
    ['at [::1]:5432', 'at [[removed]][removed]'],
    ['at 2001:db8::1', 'at [removed]'],
    ['at fe80::', 'at [removed]'],
    ['at ip-10-0-0-1', 'at [removed]'],
    ['at 10.0.\u200b0.1', 'at [removed]'],
    ['at 10.0.0.0/8', 'at [removed]'],
    ['host=primary port=5432 password=hunter2', 'host=[removed] port=[removed] password=[removed]'],
    ['"api_key": "letmein"', '"api_key": "[removed]"'],
    ['key sk-proj-abc_DEF-123456 refused', 'key [removed] refused'],
    ['key sk-***1234 refused', 'key [removed] refused'],
    ['key chatupstreamkey0123456789 refused', 'key [removed] refused'],
    ['key 550e8400-e29b-41d4-a716-446655440000 refused', 'key [removed] refused'],
    ['AKIAIOSFODNN7EXAMPLE refused', '[removed] refused'],
    ['Authorization: Bearer letmein', 'Authorization: [removed] [removed]'],
    ['eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.abc refused', '[removed] refused'],
    ['admin@example.com refused', '[removed] refused'],
    ['cannot read /etc/app/config.yaml', 'cannot read [removed]'],
    ['cannot read \\\\srv\\share or C:\\x', 'cannot read [removed] or [removed]'],
    ['https%3A%2F%2Fexample.com refused', '[removed] refused'],
  ])('are removed: %s', (text, safe) => {
    expect(redactText(text)).toBe(safe)
  })

  it('are removed in every sentence and after every punctuation mark', () => {
    const secret = fc.constantFrom(
      '10.1.2.3',
      'db.prod.internal',
      'postgres://u:pw@h/x',
      'sk-abcdefghij',
      '[fd00::7]:80',
    )
    const mark = fc.constantFrom('', '"', "'", '(', '[', '{', '<', ',', ';', '=', ':', '…', '。', '\n', '\u200b', '`')
    const filler = fc.constantFrom('is', 'to', 'The model', 'max_tokens: 5', '模型', 'gpt-4.1', '')
    const inner = ['10.1.2.3', 'internal', 'pw', 'abcdefghij', 'fd00']
    fc.assert(
      fc.property(filler, mark, secret, mark, filler, (before, open, secretText, close, after) => {
        const safe = redactText(`${before} ${open}${secretText}${close} ${after}`)
        expect(inner.filter((one) => safe.includes(one))).toEqual([])
      }),
    )
  })

  it('are removed at the end of a truncated text', () => {
    for (let length = 1960; length < 2010; length += 1) {
      const safe = redactText(`${'word '.repeat(500).slice(0, length)} db.prod.internal and more`)
      expect(safe).not.toMatch(/db\.|prod|internal/)
      expect(safe.length).toBeLessThanOrEqual(2010)
    }
  })

  it('are found in linear time in a hostile text', () => {
    const units = ['a', '.', '-', 'a.', 'a-', '%', '[', ' ', '…', '\u200b', '1.', '_a', '::', 'a1-', '。', 'é']
    for (const unit of units) expect(redactText(unit.repeat(2_000_000)).length).toBeLessThan(20_000)
  })
})

describe('details of an upstream', () => {
  it('are cleaned in keys and values', () => {
    expect(
      redactDetails({
        error_code: 'thread_unsupported_request',
        host: 'primary',
        password: { of: 'x' },
        'http://10.0.0.1/': 1,
        hints: [{ 'db.internal': ['10.0.0.1', 5, null, true] }],
      }),
    ).toEqual({
      error_code: 'thread_unsupported_request',
      host: '[removed]',
      password: '[removed]',
      '[removed]': 1,
      hints: [{ '[removed]': ['[removed]', 5, null, true] }],
    })
  })

  it('are omitted if they are absent, too long or too deep', () => {
    const deep = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`) as Json
    expect([undefined, null, 'x'.repeat(5000), deep].map(redactDetails)).toEqual(Array(4).fill(undefined))
  })
})
