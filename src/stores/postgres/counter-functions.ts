import { OTHER } from '../../core/store.ts'
import { LATE_SETTLEMENT_MS, MAX_AMOUNT, MAX_FIELDS, MAX_OTHER_FIELDS } from '../store-rules.ts'

/**
 * A settlement locks its reservation first. Counters, tallies and log shares follow, each group in order of name, which
 * prevents deadlocks. A held amount changes only while its counter is locked.
 */
export function counterFunctions(schema: string): string {
  return `${lockFunctions(schema)}${reserveFunctions(schema)}${settleFunctions(schema)}${readFunctions(schema)}`
}

function lockFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.now_of(request jsonb) RETURNS bigint LANGUAGE sql VOLATILE AS $f$
      SELECT coalesce((request->>'now')::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    $f$;

    CREATE OR REPLACE FUNCTION ${schema}.lock_counters(counter_names text[], counter_ends bigint[], moment bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE locked integer;
    BEGIN
      LOOP
        INSERT INTO ${schema}.counters (name, ends_at)
          SELECT requested.name, requested.ends_at FROM unnest(counter_names, counter_ends) AS requested (name, ends_at)
          WHERE NOT EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = requested.name)
          ORDER BY requested.name COLLATE "C" ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked FROM (
          SELECT 1 FROM ${schema}.counters c WHERE c.name = ANY (counter_names) ORDER BY c.name FOR UPDATE
        ) AS rows;
        EXIT WHEN locked = cardinality(counter_names);
      END LOOP;
      WITH expired AS (
        DELETE FROM ${schema}.holds h WHERE h.counter = ANY (counter_names) AND h.expires_at <= moment
        RETURNING h.counter, h.amount
      ), sums AS (SELECT counter, sum(amount) AS amount FROM expired GROUP BY counter)
      UPDATE ${schema}.counters c SET held = c.held - sums.amount FROM sums WHERE c.name = sums.counter;
      IF EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = ANY (counter_names) AND c.ends_at <= moment) THEN
        DELETE FROM ${schema}.holds h USING ${schema}.counters c
          WHERE h.counter = c.name AND c.name = ANY (counter_names) AND c.ends_at <= moment;
        UPDATE ${schema}.counters c SET spent = 0, held = 0 WHERE c.name = ANY (counter_names) AND c.ends_at <= moment;
      END IF;
    END $f$;
  `
}

/** The first check takes no locks and writes nothing, so a request that it rejects costs no disk flush. */
function reserveFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.decide(claims jsonb, minimum bigint, moment bigint) RETURNS jsonb
    LANGUAGE plpgsql AS $f$
    DECLARE
      claim record;
      levels bigint[] := '{}';
      granted bigint;
      rejected_index integer;
      remaining bigint;
    BEGIN
      FOR claim IN
        SELECT requested.ordinal, requested.amount, requested.max, requested.elastic, present.level
        FROM jsonb_to_recordset(claims) AS requested (ordinal integer, counter text, amount bigint, max bigint, elastic boolean)
        CROSS JOIN LATERAL (
          SELECT coalesce((
            SELECT least(${MAX_AMOUNT}, c.spent + c.held - coalesce(
              (SELECT sum(h.amount) FROM ${schema}.holds h WHERE h.counter = c.name AND h.expires_at <= moment), 0))
            FROM ${schema}.counters c WHERE c.name = requested.counter AND c.ends_at > moment), 0)::bigint AS level
        ) AS present
        ORDER BY requested.ordinal
      LOOP
        levels := levels || claim.level;
        remaining := claim.max - claim.level;
        IF rejected_index IS NULL THEN
          IF (CASE WHEN claim.elastic THEN least(claim.amount, coalesce(minimum, claim.amount)) ELSE claim.amount END) > remaining THEN
            rejected_index := claim.ordinal;
          ELSIF claim.elastic THEN
            granted := least(coalesce(granted, claim.amount), claim.amount, remaining);
          END IF;
        END IF;
      END LOOP;
      IF rejected_index IS NOT NULL THEN RETURN jsonb_build_object('refused', rejected_index, 'levels', to_jsonb(levels)); END IF;
      RETURN jsonb_build_object('granted', coalesce(granted, 0), 'levels', to_jsonb(levels));
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.reserve_claims(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      claims jsonb := request->'claims';
      minimum bigint := (request->>'minimum')::bigint;
      moment bigint := ${schema}.now_of(request);
      expires bigint := moment + (request->>'expiresAfter')::bigint;
      decision jsonb;
      expired text;
      counter_names text[];
      counter_ends bigint[];
      granted bigint;
      levels jsonb;
    BEGIN
      IF EXISTS (SELECT 1 FROM ${schema}.reservations r WHERE r.id = request->>'reservation') THEN
        RETURN '{"error":"duplicate"}';
      END IF;
      SELECT requested.counter INTO expired FROM jsonb_to_recordset(claims) AS requested (counter text, ends bigint)
        WHERE requested.ends <= moment LIMIT 1;
      IF expired IS NOT NULL THEN RETURN jsonb_build_object('error', 'expired', 'counter', expired)::text; END IF;
      decision := ${schema}.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      SELECT coalesce(array_agg(requested.counter), '{}'), coalesce(array_agg(requested.ends), '{}')
        INTO counter_names, counter_ends
        FROM jsonb_to_recordset(claims) AS requested (counter text, ends bigint);
      PERFORM ${schema}.lock_counters(counter_names, counter_ends, moment);
      decision := ${schema}.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      granted := (decision->>'granted')::bigint;
      WITH accepted AS (
        SELECT requested.counter, requested.ends, CASE WHEN requested.elastic THEN granted ELSE requested.amount END AS amount
        FROM jsonb_to_recordset(claims) AS requested (counter text, ends bigint, amount bigint, elastic boolean)
      ), inserted AS (
        INSERT INTO ${schema}.holds (reservation, counter, amount, expires_at)
        SELECT request->>'reservation', accepted.counter, accepted.amount, expires FROM accepted
      )
      UPDATE ${schema}.counters c SET held = c.held + accepted.amount, ends_at = greatest(c.ends_at, accepted.ends)
        FROM accepted WHERE c.name = accepted.counter;
      INSERT INTO ${schema}.reservations (id, expires_at) VALUES (request->>'reservation', expires);
      SELECT coalesce(jsonb_agg(
          (decision->'levels'->>requested.ordinal)::bigint
            + CASE WHEN requested.elastic THEN granted ELSE requested.amount END
          ORDER BY requested.ordinal), '[]')
        INTO levels FROM jsonb_to_recordset(claims) AS requested (ordinal integer, amount bigint, elastic boolean);
      RETURN jsonb_build_object('granted', granted, 'levels', levels)::text;
    END $f$;
  `
}

function settleFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.add_amounts(present jsonb, added jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $f$
      SELECT present || coalesce(jsonb_object_agg(field, greatest(-${MAX_AMOUNT}, least(${MAX_AMOUNT},
        coalesce((present->>field)::numeric, 0) + amount))), '{}')
      FROM (
        SELECT field, sum(amount) AS amount, present ? field OR min(size)
          + row_number() OVER (PARTITION BY present ? field ORDER BY bool_or(fits) DESC, field)
          <= ${MAX_FIELDS + MAX_OTHER_FIELDS} AS is_stored
        FROM (
          SELECT size, amount, fits,
            CASE WHEN fits THEN name WHEN strpos(name, ' ') > 0 THEN split_part(name, ' ', 1) || ' ${OTHER}' END AS field
          FROM (
            SELECT name, amount, size, present ? name
              OR size + row_number() OVER (PARTITION BY present ? name ORDER BY name) <= ${MAX_FIELDS} AS fits
            FROM (SELECT key AS name, coalesce(value::numeric, 0) AS amount FROM jsonb_each_text(added)) AS requested
            CROSS JOIN (SELECT count(*) AS size FROM jsonb_object_keys(present)) AS stored
          ) AS ranked
        ) AS named
        WHERE field IS NOT NULL GROUP BY field
      ) AS sums
      WHERE is_stored
    $f$;

    CREATE OR REPLACE FUNCTION ${schema}.settle_reservation(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      reservation_id text := request->>'reservation';
      moment bigint := ${schema}.now_of(request);
      counter_names text[];
      counter_ends bigint[];
    BEGIN
      PERFORM 1 FROM ${schema}.reservations r WHERE r.id = reservation_id AND r.expires_at + ${LATE_SETTLEMENT_MS} > moment FOR UPDATE;
      IF NOT FOUND THEN RETURN '{"settled":false}'; END IF;
      -- Does not create counters that have already expired, because no request can read them.
      SELECT coalesce(array_agg(involved.name), '{}'), coalesce(array_agg(involved.ends_at), '{}')
        INTO counter_names, counter_ends FROM (
        SELECT name, max(ends_at) AS ends_at FROM (
          SELECT c.name, c.ends_at FROM ${schema}.counters c JOIN ${schema}.holds h ON h.counter = c.name
            WHERE h.reservation = reservation_id
          UNION ALL
          SELECT charge.counter, charge.ends FROM jsonb_to_recordset(request->'charges') AS charge (counter text, ends bigint)
            WHERE charge.ends > moment
              OR EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = charge.counter AND c.ends_at > moment)
        ) AS parts GROUP BY name
      ) AS involved;
      PERFORM ${schema}.lock_counters(counter_names, counter_ends, moment);
      WITH released AS (
        DELETE FROM ${schema}.holds h WHERE h.reservation = reservation_id RETURNING h.counter, h.amount
      ), changes AS (
        SELECT counter, sum(spent) AS spent, sum(held) AS held, max(ends) AS ends FROM (
          SELECT counter, 0 AS spent, amount AS held, 0 AS ends FROM released
          UNION ALL
          SELECT charge.counter, charge.amount, 0, charge.ends
            FROM jsonb_to_recordset(request->'charges') AS charge (counter text, amount bigint, ends bigint)
        ) AS parts GROUP BY counter
      )
      UPDATE ${schema}.counters c SET
          spent = least(${MAX_AMOUNT}, c.spent + changes.spent),
          held = c.held - changes.held,
          ends_at = greatest(c.ends_at, changes.ends)
        FROM changes WHERE c.name = changes.counter;
      DELETE FROM ${schema}.reservations r WHERE r.id = reservation_id;
      INSERT INTO ${schema}.tallies AS t (name, amounts, ends_at)
        SELECT tally.name, ${schema}.add_amounts('{}', tally.amounts), coalesce(tally.ends, ${MAX_AMOUNT})
          FROM jsonb_to_recordset(request->'tallies') AS tally (name text, amounts jsonb, ends bigint)
          WHERE coalesce(tally.ends, ${MAX_AMOUNT}) > moment ORDER BY tally.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET
          amounts = ${schema}.add_amounts(CASE WHEN t.ends_at <= moment THEN '{}' ELSE t.amounts END, excluded.amounts),
          ends_at = CASE WHEN excluded.ends_at = ${MAX_AMOUNT} THEN t.ends_at ELSE excluded.ends_at END;
      PERFORM ${schema}.append_entries(request->'entries', moment);
      RETURN '{"settled":true}';
    END $f$;
  `
}

function readFunctions(schema: string): string {
  return `
    CREATE OR REPLACE FUNCTION ${schema}.read_levels(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(coalesce(c.spent, 0), coalesce(c.held, 0) - coalesce(
            (SELECT sum(h.amount) FROM ${schema}.holds h WHERE h.counter = c.name AND h.expires_at <= moment), 0))
          ORDER BY requested.ordinal), '[]')::text
        FROM jsonb_array_elements_text(request->'counters') WITH ORDINALITY AS requested (name, ordinal)
        LEFT JOIN ${schema}.counters c ON c.name = requested.name AND c.ends_at > moment
      );
    END $f$;

    CREATE OR REPLACE FUNCTION ${schema}.read_tallies(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(coalesce(t.amounts, '{}') ORDER BY requested.ordinal), '[]')::text
        FROM jsonb_array_elements_text(request->'names') WITH ORDINALITY AS requested (name, ordinal)
        LEFT JOIN ${schema}.tallies t ON t.name = requested.name AND t.ends_at > moment
      );
    END $f$;
  `
}
