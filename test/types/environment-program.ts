import { anthropic, createGateway, openai, openaiCompatible, openaiEmbedder, type Gateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { bedrock } from 'sluice/bedrock'
import { serve } from 'sluice/node'
import { postgresStore, type PostgresClient } from 'sluice/postgres'
import { azureOpenai, gemini, groq, vertex } from 'sluice/providers'
import { redisStore, type RedisClient } from 'sluice/redis'

const { env } = process

/** Fills options from environment variables, which may be unset. */
export async function startFromEnvironment(postgres: PostgresClient, redis: RedisClient): Promise<Gateway> {
  const { SLUICE_STORE: store } = env
  const gateway = createGateway({
    providers: [
      openai({ name: env['SLUICE_NAME'], apiKey: env['SLUICE_API_KEY'], baseUrl: env['SLUICE_BASE_URL'] }),
      anthropic({ apiKey: env['SLUICE_API_KEY'], baseUrl: env['SLUICE_BASE_URL'], version: env['SLUICE_VERSION'] }),
      openaiCompatible({
        name: 'local',
        baseUrl: 'http://127.0.0.1:8000/v1',
        apiKey: env['SLUICE_API_KEY'],
        family: env['SLUICE_FAMILY'],
        defaultPrice: { input: 0, output: 0 },
      }),
      groq({ apiKey: env['SLUICE_API_KEY'], baseUrl: env['SLUICE_BASE_URL'], name: env['SLUICE_NAME'] }),
      gemini({ apiKey: env['SLUICE_API_KEY'] }),
      vertex({ project: 'project', location: env['SLUICE_LOCATION'], baseUrl: env['SLUICE_BASE_URL'] }),
      bedrock({ region: env['SLUICE_REGION'], apiKey: env['SLUICE_API_KEY'], baseUrl: env['SLUICE_BASE_URL'] }),
      azureOpenai({
        resource: env['SLUICE_RESOURCE'],
        apiKey: env['SLUICE_API_KEY'],
        apiVersion: env['SLUICE_API_VERSION'],
        token: env['SLUICE_TOKEN'],
      }),
      extractive({ name: env['SLUICE_NAME'] }),
    ],
    store:
      store === 'postgres'
        ? postgresStore({ client: postgres, schema: env['SLUICE_SCHEMA'] })
        : store === 'redis'
          ? redisStore({ client: redis, prefix: env['SLUICE_PREFIX'] })
          : undefined,
    admin: { key: env['SLUICE_ADMIN_KEY'] },
    basePath: env['SLUICE_BASE_PATH'],
    savings: {
      embedder: openaiEmbedder({
        baseUrl: 'https://embeddings.example/v1',
        model: 'small',
        apiKey: env['SLUICE_API_KEY'],
      }),
    },
    log: env['SLUICE_LOG'] === undefined ? undefined : (record) => process.stdout.write(record.level),
  })
  await serve(gateway, { port: 0, hostname: env['SLUICE_HOSTNAME'] })
  return gateway
}
