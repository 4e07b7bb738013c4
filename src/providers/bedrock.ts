import { AwsV4Signer } from 'aws4fetch'
import * as z from 'zod/mini'
import type { Provider } from '../core/ports.ts'
import { CHAT_FORMAT, MESSAGES_FORMAT } from './http-provider.ts'
import { bodyText, type SignRequest } from './http-request.ts'
import {
  type Credentials,
  functionSchema,
  keyCredentials,
  missingKey,
  parseOptions,
  readEnvironment,
  trimTrailingSlashes,
} from './provider-options.ts'
import { pricedModels, vendorFields, type VendorOptions, vendorProvider } from './vendor.ts'

/** The access keys of an AWS account or role. */
export interface AwsCredentials {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken?: string | undefined
}

/** Options of `bedrock()`. */
export interface BedrockOptions extends VendorOptions {
  /** @default the environment variable AWS_REGION, otherwise 'us-east-1' */
  readonly region?: string | undefined
  /** `messages`: the messages format, for Claude. `chat`: the chat format, for other models. @default 'chat' */
  readonly api?: 'chat' | 'messages' | undefined
  /**
   * Returns the credentials with which the `aws4fetch` package signs a call (SigV4). @default `apiKey` or
   * AWS_BEARER_TOKEN_BEDROCK as a bearer token, otherwise AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
   */
  readonly credentials?: () => AwsCredentials | Promise<AwsCredentials>
  /** Signs each call. `apiKey` and `credentials` are then ignored. */
  readonly sign?: SignRequest
}

const bedrockSchema: z.ZodMiniType<BedrockOptions> = z.strictObject({
  ...vendorFields,
  region: z.exactOptional(z.string().check(z.regex(/^[a-z0-9-]+$/, { error: 'expected a region such as us-east-1' }))),
  api: z.exactOptional(z.enum(['chat', 'messages'], { error: 'expected chat or messages' })),
  credentials: z.exactOptional(functionSchema<NonNullable<BedrockOptions['credentials']>>()),
  sign: z.exactOptional(functionSchema<SignRequest>()),
})

/**
 * Creates a provider for Amazon Bedrock. The catalog has no Bedrock prices. Throws `invalid-request` for invalid
 * options.
 *
 * @example
 * const gateway = createGateway({ providers: [bedrock({ region: 'us-east-1', models: [{ id: 'amazon.nova-pro-v1:0', price: { input: 0.8, output: 3.2 } }] })] })
 */
export function bedrock(options: BedrockOptions): Provider {
  const parsed = parseOptions('bedrock', bedrockSchema, options)
  const { name = 'bedrock', api = 'chat' } = parsed
  const region = parsed.region ?? readEnvironment(['AWS_REGION']) ?? 'us-east-1'
  const isChat = api === 'chat'
  const host = isChat ? `bedrock-runtime.${region}.amazonaws.com` : `bedrock-mantle.${region}.api.aws`
  const root = trimTrailingSlashes(parsed.baseUrl ?? `https://${host}`)
  return vendorProvider(parsed, {
    functionName: 'bedrock',
    name,
    family: 'bedrock',
    known: pricedModels('bedrock', 'bedrock', parsed),
    format: isChat ? CHAT_FORMAT : MESSAGES_FORMAT,
    urls: { create: isChat ? `${root}/openai/v1/chat/completions` : `${root}/anthropic/v1/messages` },
    forwardedHeaders: isChat ? [] : ['anthropic-version', 'anthropic-beta'],
    headers: isChat ? {} : { 'anthropic-version': '2023-06-01' },
    credentials: bedrockCredentials(name, parsed, { region, service: isChat ? 'bedrock' : 'bedrock-mantle' }),
  })
}

type SigningScope = Readonly<Record<'region' | 'service', string>>

/** Reads the environment for each call, because secrets may be missing when the provider is created, as in builds. */
function bedrockCredentials(
  provider: string,
  { apiKey, credentials, sign }: BedrockOptions,
  scope: SigningScope,
): Credentials {
  if (sign !== undefined) return { sign }
  if (credentials !== undefined) return { sign: sigV4(credentials, scope) }
  const bearerCredentials = keyCredentials({ provider, apiKey, variables: ['AWS_BEARER_TOKEN_BEDROCK'] })
  if (apiKey !== undefined) return bearerCredentials
  const signSigV4 = sigV4(() => environmentCredentials(provider), scope)
  const hasToken = (): boolean => readEnvironment(['AWS_BEARER_TOKEN_BEDROCK']) !== undefined
  return {
    ...bearerCredentials,
    sign: (request) => (hasToken() && bearerCredentials.sign ? bearerCredentials.sign(request) : signSigV4(request)),
  }
}

function environmentCredentials(provider: string): AwsCredentials {
  const accessKeyId = readEnvironment(['AWS_ACCESS_KEY_ID'])
  const secretAccessKey = readEnvironment(['AWS_SECRET_ACCESS_KEY'])
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    throw missingKey(provider, ['AWS_BEARER_TOKEN_BEDROCK', 'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY'])
  }
  return { accessKeyId, secretAccessKey, sessionToken: readEnvironment(['AWS_SESSION_TOKEN']) }
}

function sigV4(credentials: NonNullable<BedrockOptions['credentials']>, scope: SigningScope): SignRequest {
  return async (request) => {
    const { method, url, headers } = request
    const body = bodyText(request.body)
    // The request's headers are not signed, because proxies may change them.
    const { sessionToken, ...keys } = await credentials()
    const session = sessionToken === undefined ? {} : { sessionToken }
    const signer = new AwsV4Signer({ ...keys, ...session, ...scope, method, url, body })
    const signed = await signer.sign()
    return { ...request, body, headers: { ...headers, ...Object.fromEntries(signed.headers) } }
  }
}
