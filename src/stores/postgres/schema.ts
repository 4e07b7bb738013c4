import { LATE_SETTLEMENT_MS } from '../store-rules.ts'
import { counterFunctions } from './counter-functions.ts'
import { logFunctions, valueFunctions } from './value-functions.ts'

export type RunQuery = (text: string, parameters: readonly string[]) => Promise<readonly unknown[]>

/** Entry n upgrades schema version n to n + 1. Released entries must not change. */
function migrationStatements(schema: string): readonly string[] {
  return [tableStatements(schema), renameStatements(schema)]
}

/** Each new version replaces the functions, so they always match the newest tables. */
function functionStatements(schema: string): string {
  return [counterFunctions, valueFunctions, logFunctions, sweepFunctions].map((create) => create(schema)).join('')
}

export async function migratePostgres(run: RunQuery, schema: string): Promise<void> {
  const migrations = migrationStatements(schema)
  const newestVersion = migrations.length
  const steps = migrations.map(
    (statements, index) => `
      IF version < ${index + 1} THEN
        ${statements}
        INSERT INTO ${schema}.migrations (version) VALUES (${index + 1});
      END IF;`,
  )
  // A single DO block, because every driver can send one statement, and a failure rolls back the whole block.
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
      IF version > ${newestVersion} THEN
        RAISE EXCEPTION 'The schema ${schema} has version %, and this version of sluice supports at most version ${newestVersion}. Update sluice.', version;
      END IF;
      ${steps.join('\n')}
      IF version < ${newestVersion} THEN
        ${functionStatements(schema)}
      END IF;
    END
    $migrate$`,
    [],
  )
  await run(`SELECT ${schema}.create_partitions($1::text) AS result`, ['{}'])
}

function tableStatements(schema: string): string {
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
      -- The transaction that wrote the entry. read_entries returns entries in the order of transactions.
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

/** Version 1 called a reservation a ticket, and its functions had other names. */
function renameStatements(schema: string): string {
  return `
    ALTER TABLE ${schema}.tickets RENAME TO reservations;
    ALTER TABLE ${schema}.reservations RENAME COLUMN name TO id;
    ALTER TABLE ${schema}.reservations RENAME COLUMN lapses_at TO expires_at;
    ALTER INDEX ${schema}.tickets_pkey RENAME TO reservations_pkey;
    ALTER INDEX ${schema}.tickets_by_lapse RENAME TO reservations_by_expiry;
    ALTER TABLE ${schema}.holds RENAME COLUMN ticket TO reservation;
    ALTER TABLE ${schema}.holds RENAME COLUMN lapses_at TO expires_at;
    DROP FUNCTION IF EXISTS ${schema}.reserve(text), ${schema}.settle(text), ${schema}.make_room(text, bigint, bigint, bigint);
  `
}

function sweepFunctions(schema: string): string {
  return `
    -- Creates the partitions of this month and the next two. Skips a month if the default partition has entries of that month.
    -- A new partition requires an exclusive lock, and settlements wait behind the request for that lock. The timeout
    -- prevents a long reader, such as pg_dump, from blocking them. A later sweep repeats the attempt.
    CREATE OR REPLACE FUNCTION ${schema}.create_partitions(input text) RETURNS text LANGUAGE plpgsql SET lock_timeout = '100ms' AS $f$
    DECLARE
      month timestamp;
      name text;
    BEGIN
      FOR ahead IN 0..2 LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
        name := 'log_entries_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass('${schema}.' || name) IS NOT NULL;
        BEGIN
          EXECUTE format('CREATE TABLE ${schema}.%I PARTITION OF ${schema}.log_entries FOR VALUES FROM (%s) TO (%s)', name,
            (extract(epoch FROM month) * 1000)::bigint,
            (extract(epoch FROM month + interval '1 month') * 1000)::bigint);
        EXCEPTION
          WHEN lock_not_available THEN RETURN '{}';
          WHEN check_violation OR duplicate_table THEN NULL;
        END;
      END LOOP;
      RETURN '{}';
    END $f$;

    -- Drops the oldest tenth of the largest share (at most 500 rows), up to 20 times, until the pool is within its limits.
    CREATE OR REPLACE FUNCTION ${schema}.drop_from_largest(pool_name text, max_entries bigint, max_bytes bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE total record; largest record; dropped_entries bigint; dropped_bytes bigint;
    BEGIN
      FOR tries IN 1..20 LOOP
        SELECT coalesce(sum(s.entries), 0) AS entries, coalesce(sum(s.bytes), 0) AS bytes INTO total
          FROM ${schema}.shares s WHERE s.pool = pool_name;
        EXIT WHEN total.entries <= max_entries AND total.bytes <= max_bytes;
        SELECT s.share, greatest(1, least(500, ceil(s.entries / 10.0)))::bigint AS batch INTO largest
          FROM ${schema}.shares s WHERE s.pool = pool_name ORDER BY s.bytes DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        IF pool_name = 'logs' THEN
          WITH dropped AS (
            DELETE FROM ${schema}.log_entries e USING (
              SELECT oldest.happened_at, oldest.id FROM ${schema}.log_entries oldest
              WHERE oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) AS first WHERE e.happened_at = first.happened_at AND e.id = first.id RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO dropped_entries, dropped_bytes FROM dropped;
        ELSE
          WITH dropped AS (
            DELETE FROM ${schema}.entries e WHERE e.key IN (
              SELECT oldest.key FROM ${schema}.entries oldest
              WHERE oldest.pool = pool_name AND oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO dropped_entries, dropped_bytes FROM dropped;
        END IF;
        PERFORM ${schema}.count_share(pool_name, largest.share, -dropped_entries, -dropped_bytes);
        EXIT WHEN dropped_entries = 0;
      END LOOP;
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.sweep(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
      expired text[];
      due record;
    BEGIN
      SELECT coalesce(array_agg(rows.name), '{}') INTO expired FROM (
        SELECT c.name FROM ${schema}.counters c WHERE c.ends_at <= moment ORDER BY c.name LIMIT 1000 FOR UPDATE SKIP LOCKED
      ) AS rows;
      DELETE FROM ${schema}.holds h WHERE h.counter = ANY (expired);
      DELETE FROM ${schema}.counters c WHERE c.name = ANY (expired);
      DELETE FROM ${schema}.reservations r WHERE r.id IN (
        SELECT old.id FROM ${schema}.reservations old WHERE old.expires_at <= moment - ${LATE_SETTLEMENT_MS} LIMIT 1000 FOR UPDATE SKIP LOCKED);
      DELETE FROM ${schema}.tallies t WHERE t.name IN (
        SELECT old.name FROM ${schema}.tallies old WHERE old.ends_at <= moment LIMIT 1000 FOR UPDATE SKIP LOCKED);
      FOR due IN
        SELECT s.pool, s.share FROM ${schema}.shares s WHERE (s.pool, s.share) IN (
          SELECT 'expiring', rows.share FROM (SELECT e.share FROM ${schema}.entries e
            WHERE e.pool = 'expiring' AND e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS rows
          UNION
          SELECT 'logs', rows.share FROM (SELECT e.share FROM ${schema}.log_entries e
            WHERE e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS rows
        ) ORDER BY s.share FOR UPDATE SKIP LOCKED
      LOOP
        IF due.pool = 'logs' THEN
          WITH deleted AS (DELETE FROM ${schema}.log_entries e WHERE e.share = due.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE ${schema}.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM deleted) AS sums
            WHERE s.pool = due.pool AND s.share = due.share;
        ELSE
          WITH deleted AS (DELETE FROM ${schema}.entries e
            WHERE e.pool = 'expiring' AND e.share = due.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE ${schema}.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM deleted) AS sums
            WHERE s.pool = due.pool AND s.share = due.share;
        END IF;
      END LOOP;
      PERFORM ${schema}.drop_from_largest('expiring', (request->'limits'->'expiring'->>'entries')::bigint,
        (request->'limits'->'expiring'->>'bytes')::bigint);
      PERFORM ${schema}.drop_from_largest('logs', (request->'limits'->'logs'->>'entries')::bigint,
        (request->'limits'->'logs'->>'bytes')::bigint);
      DELETE FROM ${schema}.shares s WHERE (s.pool, s.share) IN (
        SELECT empty.pool, empty.share FROM ${schema}.shares empty WHERE empty.entries = 0 LIMIT 1000 FOR UPDATE SKIP LOCKED);
      RETURN '{}';
    END $f$;
  `
}
