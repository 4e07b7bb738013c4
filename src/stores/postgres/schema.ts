import { LATE_MS, MAX_AMOUNT } from '../reservation-rules.ts'
import type { RunQuery } from './client.ts'
import { counterFunctions } from './counter-functions.ts'
import { logFunctions, valueFunctions } from './value-functions.ts'
import { sweepFunctions } from './sweep-functions.ts'

/**
 * Version n is the n-th entry. Entries are never changed after a release. All statements of one version run in one DO
 * block, so that every driver sends them as one statement and a failure leaves nothing behind.
 *
 * Times are milliseconds since 1970; an end of 2^53 - 1 is never reached. Keys and names sort by bytes.
 */
function migrations(schema: string): readonly string[] {
  return [
    `${tables(schema)}${counterFunctions(schema, { maxAmount: MAX_AMOUNT, lateMs: LATE_MS })}${valueFunctions(schema, MAX_AMOUNT)}${logFunctions(schema, MAX_AMOUNT)}${sweepFunctions(schema)}`,
  ]
}

function tables(schema: string): string {
  return `
    CREATE TABLE ${schema}.entries (
      key text COLLATE "C" PRIMARY KEY,
      id bigint GENERATED ALWAYS AS IDENTITY,
      value text NOT NULL,
      bytes bigint NOT NULL,
      pool text NOT NULL,
      share text COLLATE "C" NOT NULL,
      ends_at bigint NOT NULL
    );
    CREATE INDEX entries_by_share ON ${schema}.entries (pool, share, id);
    CREATE INDEX entries_by_end ON ${schema}.entries (ends_at) WHERE pool = 'expiring';

    CREATE SEQUENCE ${schema}.log_entry_ids;
    CREATE TABLE ${schema}.log_entries (
      id bigint NOT NULL DEFAULT nextval('${schema}.log_entry_ids'),
      -- The transaction that wrote the entry: entries are read in the order of transactions, see read_entries.
      writer bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
      log text COLLATE "C" NOT NULL,
      happened_at bigint NOT NULL,
      value text NOT NULL,
      bytes bigint NOT NULL,
      share text COLLATE "C" NOT NULL,
      ends_at bigint NOT NULL,
      PRIMARY KEY (happened_at, id)
    ) PARTITION BY RANGE (happened_at);
    CREATE TABLE ${schema}.log_entries_other PARTITION OF ${schema}.log_entries DEFAULT;
    CREATE INDEX log_entries_by_log ON ${schema}.log_entries (log, writer, id);
    CREATE INDEX log_entries_by_share ON ${schema}.log_entries (share, id);
    CREATE INDEX log_entries_by_end ON ${schema}.log_entries (ends_at);

    CREATE TABLE ${schema}.shares (
      pool text NOT NULL,
      share text COLLATE "C" NOT NULL,
      entries bigint NOT NULL DEFAULT 0,
      bytes bigint NOT NULL DEFAULT 0,
      PRIMARY KEY (pool, share)
    );

    CREATE TABLE ${schema}.counters (
      name text COLLATE "C" PRIMARY KEY,
      spent bigint NOT NULL DEFAULT 0,
      held bigint NOT NULL DEFAULT 0,
      ends_at bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX counters_by_end ON ${schema}.counters (ends_at);
    CREATE TABLE ${schema}.tickets (name text COLLATE "C" PRIMARY KEY, lapses_at bigint NOT NULL);
    CREATE INDEX tickets_by_lapse ON ${schema}.tickets (lapses_at);
    CREATE TABLE ${schema}.holds (
      ticket text COLLATE "C" NOT NULL,
      counter text COLLATE "C" NOT NULL,
      amount bigint NOT NULL,
      lapses_at bigint NOT NULL,
      PRIMARY KEY (ticket, counter)
    );
    CREATE INDEX holds_by_counter ON ${schema}.holds (counter, lapses_at);
    CREATE TABLE ${schema}.tallies (
      name text COLLATE "C" PRIMARY KEY,
      amounts jsonb NOT NULL,
      ends_at bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX tallies_by_end ON ${schema}.tallies (ends_at);
  `
}

/** Brings the schema to the newest version. Several processes may do so at once: the first one does the work. */
export async function migratePostgres(run: RunQuery, schema: string): Promise<void> {
  const versions = migrations(schema)
  const steps = versions.map(
    (statements, index) => `
      IF version < ${index + 1} THEN
        ${statements}
        INSERT INTO ${schema}.migrations (version) VALUES (${index + 1});
      END IF;`,
  )
  await run(
    `DO $migrate$
    DECLARE version integer;
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('sluice migrate ${schema}', 0));
      CREATE SCHEMA IF NOT EXISTS ${schema};
      CREATE TABLE IF NOT EXISTS ${schema}.migrations (
        version integer PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
      );
      SELECT coalesce(max(m.version), 0) INTO version FROM ${schema}.migrations m;
      IF version > ${versions.length} THEN
        RAISE EXCEPTION 'The schema ${schema} has version %, and this version of sluice knows ${versions.length} at most. Update sluice.', version;
      END IF;
      ${steps.join('\n')}
    END
    $migrate$`,
    [],
  )
  await run(`SELECT ${schema}.create_partitions($1::text) AS result`, ['{}'])
}
