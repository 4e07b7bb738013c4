import type { VectorIndex } from '../../core/cache.ts'
import { checkOptions, optionsOf, integerFrom } from '../../core/check-options.ts'
import { encodeText, fieldOf, toList, toNumber, toText } from '../durable-store.ts'
import { createCallFunction, createRunQuery, POSTGRES_CHECKS, type PostgresStoreOptions } from '../postgres.ts'
import { createStoreClock } from '../store-rules.ts'
import { checkVector } from '../response-store.ts'
import type { RunQuery } from './schema.ts'

/** Options for `postgresVectorIndex()`. */
export interface PostgresVectorIndexOptions extends Pick<PostgresStoreOptions, 'client' | 'schema' | 'now'> {
  /** Length of the vectors. Embedders whose vectors have the same length need separate schemas. @default 1024 */
  readonly dimensions?: number
  /** Maximum number of vectors per scope. A full scope drops the vector that expires first. @default 10,000 */
  readonly maxPerScope?: number
  /** Maximum number of vectors added by requests of one key. @default 10,000 */
  readonly maxPerKey?: number
}

/** A vector index in PostgreSQL. */
export interface PostgresVectorIndex extends VectorIndex {
  /** Creates the schema, the pgvector extension, and the index table with its functions. */
  migrate(): Promise<void>
}

/** Maximum number of dimensions of pgvector's HNSW index. */
const MAX_DIMENSIONS = 2_000
const DEFAULT_MAX_VECTORS = 10_000
const CHECK_INDEX = optionsOf(
  {
    ...POSTGRES_CHECKS,
    dimensions: integerFrom(1, MAX_DIMENSIONS),
    maxPerScope: integerFrom(0),
    maxPerKey: integerFrom(0),
  },
  ['client'],
)

/**
 * Creates a vector index in PostgreSQL with pgvector 0.8 or newer. A lookup takes one call.
 *
 * @example
 * const index = postgresVectorIndex({ client: pool, dimensions: 1024 })
 * await index.migrate()
 */
export function postgresVectorIndex(options: PostgresVectorIndexOptions): PostgresVectorIndex {
  checkOptions('postgresVectorIndex', options, CHECK_INDEX)
  const { client, schema = 'sluice', dimensions = 1024 } = options
  const { clock, useClock } = createStoreClock(options.now, () => undefined)
  const { maxPerScope = DEFAULT_MAX_VECTORS, maxPerKey = DEFAULT_MAX_VECTORS } = options
  const run = createRunQuery(client)
  const call = createCallFunction(run, schema, clock)
  const send = (name: string, request: object): Promise<unknown> => call(`${name}_${dimensions}`, request)

  return {
    add: async ({ id, scope, owner = '', vector, expiresAt }) => {
      checkVector(vector, dimensions)
      await send('add_vector', {
        id: encodeText(id),
        scope: encodeText(scope),
        owner: encodeText(owner),
        vector: Array.from(vector),
        ends: Math.floor(expiresAt),
        maxPerScope,
        maxPerKey,
      })
    },
    nearest: async (scope, vector, { minSimilarity, limit }) => {
      checkVector(vector, dimensions)
      if (limit < 1) return []
      const reply = await send('nearest_vectors', { scope: encodeText(scope), vector: Array.from(vector), limit })
      return toList(fieldOf(reply, 'neighbors'))
        .map((neighbor) => {
          const [id, similarity] = toList(neighbor)
          return { id: toText(id), similarity: toNumber(similarity) }
        })
        .filter(({ similarity }) => similarity >= minSimilarity)
    },
    remove: async (id) => void (await send('remove_vector', { id: encodeText(id) })),
    clear: async () => void (await send('clear_vectors', {})),
    useClock,
    migrate: () => migrateVectors(run, { schema, dimensions }),
  }
}

interface VectorTable {
  readonly schema: string
  /** Suffix of the names of the table and its functions, because a schema can contain vectors of several lengths. */
  readonly dimensions: number
}

const PARTITIONS = 8
/** In scopes of up to this size, all vectors are compared, which makes the result exact. */
const MAX_COMPARED = 1_000

async function migrateVectors(run: RunQuery, table: VectorTable): Promise<void> {
  const { schema } = table
  await run(
    `DO $migrate$
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('sluice migrate ${schema}', 0));
      CREATE SCHEMA IF NOT EXISTS ${schema};
      CREATE EXTENSION IF NOT EXISTS vector;
      ${tableStatements(table)}
      ${writeFunctions(table)}
      ${searchFunction(table)}
    END
    $migrate$`,
    [],
  )
}

function tableStatements({ schema, dimensions }: VectorTable): string {
  const name = `vectors_${dimensions}`
  const partitions = Array.from({ length: PARTITIONS }, (_, index) => index)
  return `
    CREATE TABLE IF NOT EXISTS ${schema}.${name} (
      scope text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      owner text COLLATE "C" NOT NULL,
      ends_at bigint NOT NULL,
      vector vector(${dimensions}) NOT NULL,
      PRIMARY KEY (scope, id)
    ) PARTITION BY HASH (scope);
    ${partitions.map((index) => `CREATE TABLE IF NOT EXISTS ${schema}.${name}_${index} PARTITION OF ${schema}.${name} FOR VALUES WITH (MODULUS ${PARTITIONS}, REMAINDER ${index});`).join('\n    ')}
    CREATE INDEX IF NOT EXISTS ${name}_by_scope ON ${schema}.${name} (scope, ends_at);
    CREATE INDEX IF NOT EXISTS ${name}_by_owner ON ${schema}.${name} (owner, ends_at);
    CREATE INDEX IF NOT EXISTS ${name}_by_id ON ${schema}.${name} (id);
    CREATE INDEX IF NOT EXISTS ${name}_by_end ON ${schema}.${name} (ends_at);
    CREATE INDEX IF NOT EXISTS ${name}_by_vector ON ${schema}.${name} USING hnsw (vector vector_cosine_ops);
  `
}

const MOMENT = `coalesce((r->>'now')::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)`

function writeFunctions({ schema, dimensions }: VectorTable): string {
  const table = `${schema}.vectors_${dimensions}`
  const deleteExcess = (column: 'scope' | 'owner', limit: string): string => `
      DELETE FROM ${table} WHERE (scope, id) IN (
        SELECT v.scope, v.id FROM ${table} v WHERE v.${column} = r->>'${column}'
        ORDER BY v.ends_at DESC, v.id OFFSET (r->>'${limit}')::integer LIMIT 20);`
  return `
    CREATE OR REPLACE FUNCTION ${schema}.add_vector_${dimensions}(request text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE
      r jsonb := request::jsonb;
      moment bigint := ${MOMENT};
    BEGIN
      DELETE FROM ${table} WHERE (scope, id) IN (
        SELECT v.scope, v.id FROM ${table} v WHERE v.ends_at <= moment ORDER BY v.ends_at LIMIT 20
        FOR UPDATE SKIP LOCKED);
      DELETE FROM ${table} v WHERE v.id = r->>'id' AND v.scope <> r->>'scope';
      INSERT INTO ${table} (scope, id, owner, ends_at, vector)
        VALUES (r->>'scope', r->>'id', r->>'owner', (r->>'ends')::bigint, (r->>'vector')::vector)
        ON CONFLICT (scope, id) DO UPDATE
        SET owner = excluded.owner, ends_at = excluded.ends_at, vector = excluded.vector;
      ${deleteExcess('scope', 'maxPerScope')}
      ${deleteExcess('owner', 'maxPerKey')}
      RETURN '{}';
    END $$;

    CREATE OR REPLACE FUNCTION ${schema}.remove_vector_${dimensions}(request text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
      DELETE FROM ${table} v WHERE v.id = request::jsonb->>'id';
      RETURN '{}';
    END $$;

    CREATE OR REPLACE FUNCTION ${schema}.clear_vectors_${dimensions}(request text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
      DELETE FROM ${table};
      RETURN '{}';
    END $$;
  `
}

/** An HNSW scan ends when it has found enough vectors of the scope or has visited `hnsw.max_scan_tuples` vectors. */
function searchFunction({ schema, dimensions }: VectorTable): string {
  const table = `${schema}.vectors_${dimensions}`
  const neighbors = (source: string): string => `
        SELECT coalesce(jsonb_agg(jsonb_build_array(n.id, n.similarity::text) ORDER BY n.similarity DESC), '[]') INTO found
        FROM (SELECT s.id, 1 - (s.vector <=> target) AS similarity FROM ${source} ORDER BY s.vector <=> target
          LIMIT (r->>'limit')::integer) n;`
  return `
    CREATE OR REPLACE FUNCTION ${schema}.nearest_vectors_${dimensions}(request text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE
      r jsonb := request::jsonb;
      moment bigint := ${MOMENT};
      target vector(${dimensions}) := (r->>'vector')::vector;
      found jsonb;
    BEGIN
      IF (SELECT count(*) FROM (SELECT 1 FROM ${table} v WHERE v.scope = r->>'scope' LIMIT ${MAX_COMPARED + 1}) few) <= ${MAX_COMPARED} THEN
        WITH s AS MATERIALIZED (
          SELECT v.id, v.vector FROM ${table} v WHERE v.scope = r->>'scope' AND v.ends_at > moment)
        ${neighbors('s')}
      ELSE
        PERFORM set_config('hnsw.ef_search', '200', true), set_config('hnsw.iterative_scan', 'strict_order', true);
        ${neighbors(`${table} s WHERE s.scope = r->>'scope' AND s.ends_at > moment`)}
      END IF;
      RETURN jsonb_build_object('neighbors', found)::text;
    END $$;
  `
}
