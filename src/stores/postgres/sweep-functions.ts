/**
 * Removes a bounded number of expired rows per call, and keeps the pools within their limits. Rows that another
 * transaction has locked are skipped.
 */
export function sweepFunctions(schema: string): string {
  return `
    -- Makes the partitions of this month and the next two. A month whose entries are in the default partition keeps it.
    CREATE FUNCTION ${schema}.create_partitions(input text) RETURNS text LANGUAGE plpgsql AS $f$
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
        EXCEPTION WHEN check_violation OR duplicate_table THEN NULL;
        END;
      END LOOP;
      RETURN '{}';
    END $f$;

    -- Drops the oldest tenth of the largest share until the pool is within its limits.
    CREATE FUNCTION ${schema}.drop_from_largest(pool_name text, max_entries bigint, max_bytes bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE total record; largest record; gone bigint; gone_bytes bigint;
    BEGIN
      FOR tries IN 1..20 LOOP
        SELECT coalesce(sum(s.entries), 0) AS entries, coalesce(sum(s.bytes), 0) AS bytes INTO total
          FROM ${schema}.shares s WHERE s.pool = pool_name;
        EXIT WHEN total.entries <= max_entries AND total.bytes <= max_bytes;
        SELECT s.share, greatest(1, least(500, ceil(s.entries / 10.0)))::bigint AS batch INTO largest FROM ${schema}.shares s WHERE s.pool = pool_name
          ORDER BY s.bytes DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        IF pool_name = 'logs' THEN
          WITH dropped AS (
            DELETE FROM ${schema}.log_entries e USING (
              SELECT oldest.happened_at, oldest.id FROM ${schema}.log_entries oldest
              WHERE oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) AS first WHERE e.happened_at = first.happened_at AND e.id = first.id RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO gone, gone_bytes FROM dropped;
        ELSE
          WITH dropped AS (
            DELETE FROM ${schema}.entries e WHERE e.key IN (
              SELECT oldest.key FROM ${schema}.entries oldest
              WHERE oldest.pool = pool_name AND oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO gone, gone_bytes FROM dropped;
        END IF;
        PERFORM ${schema}.count_share(pool_name, largest.share, -gone, -gone_bytes);
        EXIT WHEN gone = 0;
      END LOOP;
    END $f$;

    CREATE FUNCTION ${schema}.sweep(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
      late bigint := moment - (request->>'late')::bigint;
      ended text[];
      one record;
    BEGIN
      SELECT coalesce(array_agg(rows.name), '{}') INTO ended FROM (
        SELECT c.name FROM ${schema}.counters c WHERE c.ends_at <= moment ORDER BY c.name LIMIT 1000 FOR UPDATE SKIP LOCKED
      ) AS rows;
      DELETE FROM ${schema}.holds h WHERE h.counter = ANY (ended);
      DELETE FROM ${schema}.counters c WHERE c.name = ANY (ended);
      DELETE FROM ${schema}.tickets t WHERE t.name IN (
        SELECT old.name FROM ${schema}.tickets old WHERE old.lapses_at <= late LIMIT 1000 FOR UPDATE SKIP LOCKED);
      DELETE FROM ${schema}.tallies t WHERE t.name IN (
        SELECT old.name FROM ${schema}.tallies old WHERE old.ends_at <= moment LIMIT 1000 FOR UPDATE SKIP LOCKED);
      FOR one IN
        SELECT s.pool, s.share FROM ${schema}.shares s WHERE (s.pool, s.share) IN (
          SELECT 'expiring', due.share FROM (SELECT e.share FROM ${schema}.entries e
            WHERE e.pool = 'expiring' AND e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS due
          UNION
          SELECT 'logs', due.share FROM (SELECT e.share FROM ${schema}.log_entries e
            WHERE e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS due
        ) ORDER BY s.share FOR UPDATE SKIP LOCKED
      LOOP
        IF one.pool = 'logs' THEN
          WITH gone AS (DELETE FROM ${schema}.log_entries e WHERE e.share = one.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE ${schema}.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM gone) AS sums
            WHERE s.pool = one.pool AND s.share = one.share;
        ELSE
          WITH gone AS (DELETE FROM ${schema}.entries e
            WHERE e.pool = 'expiring' AND e.share = one.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE ${schema}.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM gone) AS sums
            WHERE s.pool = one.pool AND s.share = one.share;
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
