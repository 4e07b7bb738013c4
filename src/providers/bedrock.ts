import { AwsV4Signer } from 'aws4fetch'
import { checkOptions, functionCheck, matching, oneOf, type OptionCheck, optionsOf } from '../core/check-options.ts'
import type { Provider } from '../core/ports.ts'
import { CHAT_FORMAT, MESSAGES_FORMAT } from './http-provider.ts'
import { bodyText, type SignRequest } from './http-request.ts'
import {
  type Credentials,
  keyCredentials,
  missingKey,
  readEnvironment,
  trimTrailingSlashes,
} from './provider-options.ts'
import { pricedModels, VENDOR_CHECKS, type VendorOptions, vendorProvider } from './vendor.ts'

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

const checkBedrock: OptionCheck = optionsOf({
  ...VENDOR_CHECKS,
  region: matching(/^[a-z0-9-]+$/, 'a region such as us-east-1'),
  api: oneOf('chat', 'messages'),
  credentials: functionCheck('credentials() that returns the access keys'),
  sign: functionCheck('sign(request)'),
} satisfies Record<keyof BedrockOptions, OptionCheck>)

/**
 * Creates a provider for Amazon Bedrock. The catalog has no Bedrock prices. Throws `invalid-request` for invalid
 * options.
 *
 * @example
 * const gateway = createGateway({ providers: [bedrock({ region: 'us-east-1', models: [{ id: 'amazon.nova-pro-v1:0', price: { input: 0.8, output: 3.2 } }] })] })
 */
export function bedrock(options: BedrockOptions): Provider {
  checkOptions('bedrock', options, checkBedrock)
  const { name = 'bedrock', api = 'chat' } = options
  const region = options.region ?? readEnvironment(['AWS_REGION']) ?? 'us-east-1'
  const isChat = api === 'chat'
  const host = isChat ? `bedrock-runtime.${region}.amazonaws.com` : `bedrock-mantle.${region}.api.aws`
  const root = trimTrailingSlashes(options.baseUrl ?? `https://${host}`)
  return vendorProvider(options, {
    functionName: 'bedrock',
    name,
    family: 'bedrock',
    known: pricedModels('bedrock', 'bedrock', options),
    format: isChat ? CHAT_FORMAT : MESSAGES_FORMAT,
    urls: { create: isChat ? `${root}/openai/v1/chat/completions` : `${root}/anthropic/v1/messages` },
    forwardedHeaders: isChat ? [] : ['anthropic-version', 'anthropic-beta'],
    headers: isChat ? {} : { 'anthropic-version': '2023-06-01' },
    credentials: bedrockCredentials(name, options, { region, service: isChat ? 'bedrock' : 'bedrock-mantle' }),
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
