/**
 * Two transactions may commit in another order than they took their ids, so a reader that continues after the greatest
 * id could miss an entry. Entries are therefore read in the order of transactions, and only below the oldest running
 * one. A read waits up to 200 ms for transactions that ran when it began, so that it sees what was written before it.
 */
export function logFunctions(schema: string, never: number): string {
  return `
    CREATE FUNCTION ${schema}.append_entry(entry jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
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
        coalesce(moment + ceil((entry->>'ttl')::numeric)::bigint, ${never}));
      PERFORM ${schema}.count_share('logs', share_name, 1, size);
    END $f$;

    -- Entries in the order of their shares: one order of locks for all writers.
    CREATE FUNCTION ${schema}.append_entries(entries jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE entry jsonb;
    BEGIN
      FOR entry IN SELECT value FROM jsonb_array_elements(entries) ORDER BY value->>'share' COLLATE "C" LOOP
        PERFORM ${schema}.append_entry(entry, moment);
      END LOOP;
    END $f$;

    CREATE FUNCTION ${schema}.append(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE request jsonb := input::jsonb;
    BEGIN
      PERFORM ${schema}.append_entries(request->'entries', ${schema}.now_of(request));
      RETURN '{}';
    END $f$;

    CREATE FUNCTION ${schema}.read_entries(input text) RETURNS text LANGUAGE plpgsql AS $f$
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
