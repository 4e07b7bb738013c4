import { MAX_AMOUNT } from '../store-rules.ts'

const NEVER = MAX_AMOUNT

/** A write takes the advisory lock of its key, then locks the shares that it changes, in order of pool and name. */
export function valueFunctions(schema: string): string {
  return `${shareFunctions(schema)}${writeFunctions(schema)}${readFunctions(schema)}`
}

function shareFunctions(schema: string): string {
  return `
    -- Creates missing shares and locks all of them in the order of their names.
    CREATE OR REPLACE FUNCTION ${schema}.lock_shares(pool_name text, names text[]) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE locked integer;
    BEGIN
      LOOP
        INSERT INTO ${schema}.shares (pool, share)
          SELECT pool_name, requested.name FROM unnest(names) AS requested (name)
          WHERE NOT EXISTS (SELECT 1 FROM ${schema}.shares s WHERE s.pool = pool_name AND s.share = requested.name)
          ORDER BY requested.name COLLATE "C" ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked FROM (
          SELECT 1 FROM ${schema}.shares s WHERE s.pool = pool_name AND s.share = ANY (names) ORDER BY s.share FOR UPDATE
        ) AS rows;
        EXIT WHEN locked = cardinality(names);
      END LOOP;
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.count_share(pool_name text, share_name text, more bigint, more_bytes bigint) RETURNS void
    LANGUAGE sql AS $f$
      UPDATE ${schema}.shares SET entries = entries + more, bytes = bytes + more_bytes
        WHERE pool = pool_name AND share = share_name
    $f$;

    -- Drops the oldest values of a locked share until a value of this size fits.
    CREATE OR REPLACE FUNCTION ${schema}.drop_until_fits(share_name text, size bigint, max_entries bigint, max_bytes bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE freed bigint; held record;
    BEGIN
      LOOP
        SELECT s.entries, s.bytes INTO held FROM ${schema}.shares s WHERE s.pool = 'expiring' AND s.share = share_name;
        EXIT WHEN held.entries + 1 <= max_entries AND held.bytes + size <= max_bytes;
        DELETE FROM ${schema}.entries e WHERE e.key = (
          SELECT oldest.key FROM ${schema}.entries oldest
          WHERE oldest.pool = 'expiring' AND oldest.share = share_name ORDER BY oldest.id LIMIT 1
        ) RETURNING e.bytes INTO freed;
        EXIT WHEN freed IS NULL;
        PERFORM ${schema}.count_share('expiring', share_name, -1, -freed);
      END LOOP;
    END $f$;
  `
}

function writeFunctions(schema: string): string {
  return `
    -- Writes a value, or deletes it if the request has no value. The caller has locked the key.
    CREATE OR REPLACE FUNCTION ${schema}.put_value(request jsonb, moment bigint) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      key_name text := request->>'key';
      new_pool text := coalesce(request->>'pool', 'durable');
      new_share text := coalesce(request->>'share', '');
      size bigint := coalesce((request->>'bytes')::bigint, 0);
      max_entries bigint := (request->'quota'->>'entries')::bigint;
      max_bytes bigint := (request->'quota'->>'bytes')::bigint;
      ttl numeric := (request->>'ttl')::numeric;
      has_value boolean := request ? 'value';
      old record;
      held record;
      total record;
      more_entries bigint := 1;
      more_bytes bigint := size;
      dropped bigint;
      dropped_bytes bigint;
    BEGIN
      SELECT e.pool, e.share INTO old FROM ${schema}.entries e WHERE e.key = key_name;
      -- All writers lock shares of 'expiring' before shares of 'owned', so that no two writers wait for each other.
      IF old.pool = 'expiring' AND new_pool <> 'expiring' THEN PERFORM ${schema}.lock_shares('expiring', ARRAY[old.share]); END IF;
      IF has_value AND new_pool <> 'durable' THEN
        IF old.pool = 'owned' AND new_pool = 'expiring' THEN
          PERFORM ${schema}.lock_shares('expiring', ARRAY[new_share]);
          PERFORM ${schema}.lock_shares('owned', ARRAY[old.share]);
        ELSIF old.pool = new_pool AND old.share <> new_share THEN
          PERFORM ${schema}.lock_shares(new_pool, ARRAY[old.share, new_share]);
        ELSE
          PERFORM ${schema}.lock_shares(new_pool, ARRAY[new_share]);
        END IF;
      END IF;
      IF old.pool = 'owned' AND (NOT has_value OR new_pool = 'durable') THEN
        PERFORM ${schema}.lock_shares('owned', ARRAY[old.share]);
      END IF;
      -- Reads the value again, because another writer may have dropped it before the lock.
      SELECT e.pool, e.share, e.bytes, e.ends_at INTO old FROM ${schema}.entries e WHERE e.key = key_name;
      IF has_value AND new_pool = 'owned' AND NOT (request->>'mustFit')::boolean THEN
        IF old.pool = 'owned' AND old.share = new_share THEN
          more_entries := 0;
          more_bytes := size - old.bytes;
        END IF;
        IF more_entries > 0 OR more_bytes > 0 THEN
          SELECT s.entries, s.bytes INTO held FROM ${schema}.shares s WHERE s.pool = 'owned' AND s.share = new_share;
          SELECT coalesce(sum(s.entries), 0) AS entries, coalesce(sum(s.bytes), 0) AS bytes INTO total
            FROM ${schema}.shares s WHERE s.pool = 'owned';
          IF held.entries + more_entries > least(max_entries, (request->'limit'->>'entries')::bigint - total.entries - more_entries)
            OR held.bytes + more_bytes > least(max_bytes, (request->'limit'->>'bytes')::bigint - total.bytes - more_bytes)
          THEN RETURN '{"full":true}'; END IF;
        END IF;
      END IF;
      IF old.pool IS NOT NULL THEN
        DELETE FROM ${schema}.entries e WHERE e.key = key_name;
        IF old.pool <> 'durable' THEN PERFORM ${schema}.count_share(old.pool, old.share, -1, -old.bytes); END IF;
      END IF;
      IF NOT has_value OR ttl <= 0 THEN
        RETURN jsonb_build_object('done', true, 'found', coalesce(old.ends_at > moment, false))::text;
      END IF;
      IF new_pool = 'expiring' THEN
        WITH expired AS (
          DELETE FROM ${schema}.entries e WHERE e.pool = 'expiring' AND e.share = new_share AND e.ends_at <= moment
          RETURNING e.bytes
        ) SELECT count(*), coalesce(sum(bytes), 0) INTO dropped, dropped_bytes FROM expired;
        PERFORM ${schema}.count_share('expiring', new_share, -dropped, -dropped_bytes);
        IF max_entries IS NOT NULL THEN PERFORM ${schema}.drop_until_fits(new_share, size, max_entries, max_bytes); END IF;
      END IF;
      INSERT INTO ${schema}.entries (key, value, bytes, pool, share, ends_at)
        VALUES (key_name, request->>'value', size, new_pool, new_share, coalesce(moment + ceil(ttl)::bigint, ${NEVER}));
      IF new_pool <> 'durable' THEN PERFORM ${schema}.count_share(new_pool, new_share, 1, size); END IF;
      RETURN '{"done":true}';
    END $f$;

    -- Implements set, swap and delete. The lock of the key orders concurrent writers.
    CREATE OR REPLACE FUNCTION ${schema}.write_value(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      found_value text;
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('${schema} ' || (request->>'key'), 0));
      IF request ? 'isSwap' THEN
        SELECT e.value INTO found_value FROM ${schema}.entries e
          WHERE e.key = request->>'key' AND e.ends_at > ${schema}.now_of(request);
        IF found_value IS DISTINCT FROM request->>'expected' THEN RETURN '{"done":false}'; END IF;
      END IF;
      RETURN ${schema}.put_value(request, ${schema}.now_of(request));
    END $f$;
  `
}

function readFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.read_value(input text) RETURNS text LANGUAGE sql VOLATILE AS $f$
      SELECT coalesce((
        SELECT jsonb_build_object('value', e.value) FROM ${schema}.entries e
        WHERE e.key = input::jsonb->>'key' AND (e.ends_at = ${NEVER} OR e.ends_at > ${schema}.now_of(input::jsonb))
      ), '{}')::text
    $f$;

    -- Keys with a common prefix are contiguous. The caller drops the keys that follow them.
    CREATE OR REPLACE FUNCTION ${schema}.list_keys(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(page.key ORDER BY page.key), '[]')::text FROM (
          SELECT e.key FROM ${schema}.entries e
          WHERE e.key >= request->>'prefix' AND e.key > coalesce(request->>'after', '') AND e.ends_at > moment
          ORDER BY e.key LIMIT (request->>'limit')::bigint
        ) AS page
      );
    END $f$;
  `
}

/**
 * Entry ids are assigned before the commit, so an entry can become visible after an entry with a greater id. Reads
 * therefore follow the order of transaction ids and end before the oldest running transaction. To include all earlier
 * writes, a read waits up to 200 ms for the transactions that are running when the read starts.
 */
export function logFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.append_entry(entry jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE
      share_name text := entry->>'share';
      size bigint := (entry->>'bytes')::bigint;
      held record;
      freed bigint;
    BEGIN
      PERFORM ${schema}.lock_shares('logs', ARRAY[share_name]);
      LOOP
        EXIT WHEN NOT entry ? 'quota';
        SELECT s.entries, s.bytes INTO held FROM ${schema}.shares s WHERE s.pool = 'logs' AND s.share = share_name;
        EXIT WHEN held.entries + 1 <= (entry->'quota'->>'entries')::bigint
          AND held.bytes + size <= (entry->'quota'->>'bytes')::bigint;
        DELETE FROM ${schema}.log_entries e USING (
          SELECT oldest.happened_at, oldest.id FROM ${schema}.log_entries oldest
          WHERE oldest.share = share_name ORDER BY oldest.id LIMIT 1
        ) AS first WHERE e.happened_at = first.happened_at AND e.id = first.id RETURNING e.bytes INTO freed;
        EXIT WHEN freed IS NULL;
        PERFORM ${schema}.count_share('logs', share_name, -1, -freed);
      END LOOP;
      INSERT INTO ${schema}.log_entries (log, happened_at, value, bytes, share, ends_at) VALUES (
        entry->>'log', (entry->>'at')::numeric::bigint, entry->>'value', size, share_name,
        coalesce(moment + ceil((entry->>'ttl')::numeric)::bigint, ${NEVER}));
      PERFORM ${schema}.count_share('logs', share_name, 1, size);
    END $f$;

    -- All writers lock shares in the order of their names, so that no two writers wait for each other.
    CREATE OR REPLACE FUNCTION ${schema}.append_entries(entries jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE entry jsonb;
    BEGIN
      FOR entry IN SELECT value FROM jsonb_array_elements(entries) ORDER BY value->>'share' COLLATE "C" LOOP
        PERFORM ${schema}.append_entry(entry, moment);
      END LOOP;
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.append(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE request jsonb := input::jsonb;
    BEGIN
      PERFORM ${schema}.append_entries(request->'entries', ${schema}.now_of(request));
      RETURN '{}';
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.read_entries(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
      newest xid8 := pg_snapshot_xmax(pg_current_snapshot());
      after_writer bigint := coalesce((request->>'afterWriter')::bigint, 0);
      after_id bigint := coalesce((request->>'afterId')::bigint, 0);
    BEGIN
      FOR tries IN 1..40 LOOP
        EXIT WHEN pg_snapshot_xmin(pg_current_snapshot()) >= newest;
        PERFORM pg_sleep(0.005);
      END LOOP;
      RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(page.writer::text, page.id::text, page.happened_at, page.value)
          ORDER BY page.writer, page.id), '[]')::text
        FROM (
          SELECT e.writer, e.id, e.happened_at, e.value FROM ${schema}.log_entries e
          WHERE e.log = request->>'log' AND (e.writer, e.id) > (after_writer, after_id)
            AND e.writer < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
            AND e.ends_at > moment
            AND e.happened_at >= coalesce((request->>'from')::numeric, e.happened_at)
            AND e.happened_at < coalesce((request->>'to')::numeric, e.happened_at + 1)
          ORDER BY e.writer, e.id LIMIT (request->>'limit')::bigint
        ) AS page
      );
    END $f$;
  `
}
