import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { responseFailure, readFailure } from '../../src/formats/read-failure.ts'
import { redactDetails, redactText } from '../../src/formats/redact-text.ts'

describe("names and numbers of the operator's cloud account", () => {
  it.each([
    ['Project `my-proj-123` is suspended.', 'Project `[removed]` is suspended.'],
    [
      "The project 'northwind' has no access to model `gpt-4o`.",
      "The project '[removed]' has no access to model `gpt-4o`.",
    ],
    ['Project northwind is suspended.', 'Project [removed] is suspended.'],
    ['quota of project northwind.', 'quota of project [removed]'],
    ['project: northwind', 'project: [removed]'],
    ['project_id=northwind', 'project_id=[removed]'],
    ['{"account":"northwind","limit": 5}', '{"account":"[removed]","limit": 5}'],
    ['Consumer project number 123456789012 refused', 'Consumer project number [removed] refused'],
    ['projects/northwind was not found', '[removed] was not found'],
    ['resourceGroups/rg and tenants/acme', '[removed] and [removed]'],
    ['accounts/acme, users/jane, user/jane', '[removed], [removed], [removed]'],
    ['resource group rg-east-1 has no quota', 'resource group [removed] has no quota'],
    ["Resource group 'Acme East' could not be found.", "Resource group '[removed] [removed]' could not be found."],
    ['tenant ID acme-prod1 is unknown', 'tenant ID [removed] is unknown'],
    ['Your project ID is my-proj-1 here', 'Your project ID is [removed] here'],
    ['The subscription named acme-1 is disabled', 'The subscription named [removed] is disabled'],
    ['organization Northwind Traders is disabled', 'organization [removed] [removed] is disabled'],
    ['account 1234-5678-9012 is closed', 'account [removed] is closed'],
    ['for 123456789012 in us-east-1', 'for [removed] in us-east-1'],
    ['in bucket-123456789012', 'in [removed]'],
    ['in gen-lang-client-0123456789', 'in [removed]'],
    ['in org-abcdef, org_abc and proj_abc', 'in [removed], [removed] and [removed]'],
    ['in 11111111-1111-1111-1111-abcdefabcdef', 'in [removed]'],
  ])('are removed: %s', (text, safe) => {
    expect(redactText(text)).toBe(safe)
  })

  it.each([
    [
      'OpenAI',
      'Project `proj_abc` of organization org-abcdef does not have access to model `gpt-4o`',
      'Project `[removed]` of organization [removed] does not have access to model `gpt-4o`',
    ],
    [
      'Azure',
      "Resource 'Microsoft.CognitiveServices' of resource group 'ai-east' in subscription 'acme' exceeds the limit 240000.",
      "Resource '[removed]' of resource group '[removed]' in subscription '[removed]' exceeds the limit 240000.",
    ],
    [
      'Vertex',
      'Publisher Model `projects/acme-ai/locations/us-central1/publishers/google/models/gemini-9` was not found or your ' +
        'project acme-ai does not have access to it.',
      'Publisher Model `[removed]` was not found or your project [removed] does not have access to it.',
    ],
    [
      'Gemini',
      "Quota exceeded for metric, limit 'GenerateRequestsPerMinute' of consumer 'project_number:123456789012'.",
      "Quota exceeded for metric, limit 'GenerateRequestsPerMinute' of consumer '[removed]'.",
    ],
    [
      'Bedrock',
      'User: arn:aws:iam::123456789012:user/jane cannot use the model in account 123456789012.',
      'User: [removed] cannot use the model in account [removed]',
    ],
    [
      'Anthropic',
      'Workspace wrkspc_abc of organization acme-labs: max_tokens: 9000 > 8192',
      'Workspace [removed] of organization [removed] max_tokens: 9000 > 8192',
    ],
  ])('are removed from an error of %s', (_vendor, message, safe) => {
    const { kind, message: received } = readFailure(400, { error: { message } })
    expect([kind, received]).toEqual(['upstream-rejected', safe])
    expect(responseFailure({ error: { message, code: 400 } }).message).toBe(safe)
  })

  it('are removed from details', () => {
    const details: JsonObject = {
      reason: 'RATE_LIMIT_EXCEEDED',
      metadata: {
        consumer: 'northwind',
        project_id: 'northwind',
        quota_limit_value: '4000000000',
        model: 'gemini-2.5',
      },
      account: 'acme',
      projectNumber: 123_456_789_012,
      resourceGroup: 'acme',
      id: 123_456_789_012,
      reset_at: 1_732_467_252,
      seconds: '1732467252',
      accounts: null,
    }
    expect(redactDetails(details)).toEqual({
      reason: 'RATE_LIMIT_EXCEEDED',
      metadata: {
        consumer: '[removed]',
        project_id: '[removed]',
        quota_limit_value: '4000000000',
        model: 'gemini-2.5',
      },
      account: '[removed]',
      projectNumber: '[removed]',
      resourceGroup: '[removed]',
      id: '[removed]',
      reset_at: 1_732_467_252,
      seconds: '1732467252',
      accounts: null,
    })
  })

  it('are found in linear time', () => {
    const units = [
      'project ',
      'project `',
      'account: ',
      '1',
      '1-',
      'org-',
      'projects/',
      "project 'a ",
      'limit 123456789 ',
    ]
    for (const unit of units) expect(redactText(unit.repeat(500_000)).length).toBeLessThan(20_000)
  })
})

describe('texts about accounts and numbers that name no account', () => {
  it.each([
    'Your organization must be verified to stream this model.',
    "Your organization's quota is used up; check the account's plan.",
    'Your account is not active, please check your billing details on our website.',
    'Your project does not have access to this model.',
    'The account balance is too low. Please add credits to your account.',
    'This subscription has been disabled. Please enable the API in your project.',
    'The organization has disabled this model; ask the account owner.',
    'Limits apply per project and per organization, not per account.',
    "Unknown parameter: 'project'. Missing field 'account' is required.",
    'project: Field required. account: Extra inputs are not permitted. tenant: Expected a string.',
    'The project ID is malformed.',
    'This feature is set at organization-level or project-level.',
    'The tenant admin can change project settings.',
    'Conversation roles must alternate user/assistant.',
    'max_tokens: 3000000000 > 2147483647, which is the maximum allowed number of output tokens',
    'seed must be an integer between 0 and 4294967295',
    'expected an integer from 1 to 1000000000',
    'The file has 1073741824 bytes, but the limit is 104857600 bytes.',
    'Retry after 1732467252, in 35.123456789s or 86400000ms.',
    'The timestamp 1732467252123 is in the past; the limit resets at 2026-11-24T16:54:12Z.',
    'The temperature 0.30000000000000004 is not supported.',
    'The model claude-3-5-sonnet-20241022 was retired on 2025-10-22.',
    "The 'user' field is deprecated; use user_id, org_id or project_id.",
    'It ended at 2026-11-24T16:54:12.123+00:00.',
  ])('are unchanged: %s', (text) => {
    expect(redactText(text)).toBe(text)
  })
})
