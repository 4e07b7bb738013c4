export { bedrock, type AwsCredentials, type BedrockOptions } from './providers/bedrock.ts'
