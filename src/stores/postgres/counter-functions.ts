interface Constants {
  readonly maxAmount: number
  readonly lateMs: number
}

/**
 * Functions over counters, reservations and tallies.
 *
 * Lock order, so that no two steps wait for each other: the reservation, then counters by name, then tallies by name, then
 * shares of logs by name. A hold is changed only under the lock of its counter.
 */
export function counterFunctions(schema: string, constants: Constants): string {
  return `${clock(schema)}${locks(schema)}${reserve(schema, constants)}${settle(schema, constants)}${reads(schema)}`
}

/** Returns the time of the server, which all processes share, unless the request contains a time. */
function clock(schema: string): string {
  return `
    CREATE FUNCTION ${schema}.now_of(request jsonb) RETURNS bigint LANGUAGE sql VOLATILE AS $f$
      SELECT coalesce((request->>'now')::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    $f$;
  `
}

/**
 * lock_counters creates missing counters and locks all in the order of names. It releases expired reservations.
 * Expired counters start again at zero, without their old holds.
 */
function locks(schema: string): string {
  return `
    CREATE FUNCTION ${schema}.lock_counters(counter_names text[], counter_ends bigint[], moment bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE locked integer;
    BEGIN
      LOOP
        INSERT INTO ${schema}.counters (name, ends_at)
          SELECT wanted.name, wanted.ends_at FROM unnest(counter_names, counter_ends) AS wanted (name, ends_at)
          WHERE NOT EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = wanted.name)
          ORDER BY wanted.name COLLATE "C" ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked FROM (
          SELECT 1 FROM ${schema}.counters c WHERE c.name = ANY (counter_names) ORDER BY c.name FOR UPDATE
        ) AS rows;
        EXIT WHEN locked = cardinality(counter_names);
      END LOOP;
      WITH gone AS (
        DELETE FROM ${schema}.holds h WHERE h.counter = ANY (counter_names) AND h.lapses_at <= moment
        RETURNING h.counter, h.amount
      ), sums AS (SELECT counter, sum(amount) AS amount FROM gone GROUP BY counter)
      UPDATE ${schema}.counters c SET held = c.held - sums.amount FROM sums WHERE c.name = sums.counter;
      IF EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = ANY (counter_names) AND c.ends_at <= moment) THEN
        DELETE FROM ${schema}.holds h USING ${schema}.counters c
          WHERE h.counter = c.name AND c.name = ANY (counter_names) AND c.ends_at <= moment;
        UPDATE ${schema}.counters c SET spent = 0, held = 0 WHERE c.name = ANY (counter_names) AND c.ends_at <= moment;
      END IF;
    END $f$;
  `
}

/**
 * Checks first without locks: a refusal by a committed state is correct and writes nothing, so an exhausted budget
 * costs no disk flush. Only a request that fits locks its counters and checks again.
 */
function reserve(schema: string, { maxAmount }: Constants): string {
  return `
    CREATE FUNCTION ${schema}.decide(claims jsonb, minimum bigint, moment bigint) RETURNS jsonb
    LANGUAGE plpgsql AS $f$
    DECLARE
      claim record;
      levels bigint[] := '{}';
      granted bigint;
      refused integer;
      remaining bigint;
    BEGIN
      FOR claim IN
        SELECT wanted.place, wanted.amount, wanted.max, wanted.elastic, least_of.level
        FROM jsonb_to_recordset(claims) AS wanted (place integer, counter text, amount bigint, max bigint, elastic boolean)
        CROSS JOIN LATERAL (
          SELECT coalesce((
            SELECT least(${maxAmount}, c.spent + c.held - coalesce(
              (SELECT sum(h.amount) FROM ${schema}.holds h WHERE h.counter = c.name AND h.lapses_at <= moment), 0))
            FROM ${schema}.counters c WHERE c.name = wanted.counter AND c.ends_at > moment), 0)::bigint AS level
        ) AS least_of
        ORDER BY wanted.place
      LOOP
        levels := levels || claim.level;
        remaining := claim.max - claim.level;
        IF refused IS NULL THEN
          IF (CASE WHEN claim.elastic THEN least(claim.amount, coalesce(minimum, claim.amount)) ELSE claim.amount END) > remaining THEN
            refused := claim.place;
          ELSIF claim.elastic THEN
            granted := least(coalesce(granted, claim.amount), claim.amount, remaining);
          END IF;
        END IF;
      END LOOP;
      IF refused IS NOT NULL THEN RETURN jsonb_build_object('refused', refused, 'levels', to_jsonb(levels)); END IF;
      RETURN jsonb_build_object('granted', coalesce(granted, 0), 'levels', to_jsonb(levels));
    END $f$;

    CREATE FUNCTION ${schema}.reserve(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      claims jsonb := request->'claims';
      minimum bigint := (request->>'least')::bigint;
      moment bigint := ${schema}.now_of(request);
      lapses bigint := moment + (request->>'lapsesAfter')::bigint;
      decision jsonb;
      ended text;
      counter_names text[];
      counter_ends bigint[];
      granted bigint;
      levels jsonb;
    BEGIN
      IF EXISTS (SELECT 1 FROM ${schema}.tickets t WHERE t.name = request->>'ticket') THEN RETURN '{"error":"taken"}'; END IF;
      SELECT wanted.counter INTO ended FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint)
        WHERE wanted.ends <= moment LIMIT 1;
      IF ended IS NOT NULL THEN RETURN jsonb_build_object('error', 'ended', 'counter', ended)::text; END IF;
      decision := ${schema}.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      SELECT coalesce(array_agg(wanted.counter), '{}'), coalesce(array_agg(wanted.ends), '{}') INTO counter_names, counter_ends
        FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint);
      PERFORM ${schema}.lock_counters(counter_names, counter_ends, moment);
      decision := ${schema}.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      granted := (decision->>'granted')::bigint;
      WITH taken AS (
        SELECT wanted.counter, wanted.ends, CASE WHEN wanted.elastic THEN granted ELSE wanted.amount END AS amount
        FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint, amount bigint, elastic boolean)
      ), holds AS (
        INSERT INTO ${schema}.holds (ticket, counter, amount, lapses_at)
        SELECT request->>'ticket', taken.counter, taken.amount, lapses FROM taken
      )
      UPDATE ${schema}.counters c SET held = c.held + taken.amount, ends_at = greatest(c.ends_at, taken.ends)
        FROM taken WHERE c.name = taken.counter;
      INSERT INTO ${schema}.tickets (name, lapses_at) VALUES (request->>'ticket', lapses);
      SELECT coalesce(jsonb_agg(
          (decision->'levels'->>wanted.place)::bigint + CASE WHEN wanted.elastic THEN granted ELSE wanted.amount END
          ORDER BY wanted.place), '[]')
        INTO levels FROM jsonb_to_recordset(claims) AS wanted (place integer, amount bigint, elastic boolean);
      RETURN jsonb_build_object('granted', granted, 'levels', levels)::text;
    END $f$;
  `
}

function settle(schema: string, { maxAmount, lateMs }: Constants): string {
  return `
    CREATE FUNCTION ${schema}.add_amounts(present jsonb, added jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $f$
      SELECT coalesce(jsonb_object_agg(field, greatest(-${maxAmount}, least(${maxAmount},
        coalesce((present->>field)::numeric, 0) + coalesce((added->>field)::numeric, 0)))), '{}')
      FROM jsonb_object_keys(present || added) AS field
      WHERE present ? field OR (SELECT count(*) FROM jsonb_object_keys(present)) < 4096
    $f$;

    CREATE FUNCTION ${schema}.settle(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      ticket_name text := request->>'ticket';
      moment bigint := ${schema}.now_of(request);
      counter_names text[];
      counter_ends bigint[];
    BEGIN
      PERFORM 1 FROM ${schema}.tickets t WHERE t.name = ticket_name AND t.lapses_at + ${lateMs} > moment FOR UPDATE;
      IF NOT FOUND THEN RETURN '{"settled":false}'; END IF;
      -- A charge to a counter that has ended and is gone is dropped: no request can read it.
      SELECT coalesce(array_agg(wanted.name), '{}'), coalesce(array_agg(wanted.ends_at), '{}') INTO counter_names, counter_ends FROM (
        SELECT name, max(ends_at) AS ends_at FROM (
          SELECT c.name, c.ends_at FROM ${schema}.counters c JOIN ${schema}.holds h ON h.counter = c.name
            WHERE h.ticket = ticket_name
          UNION ALL
          SELECT charge.counter, charge.ends FROM jsonb_to_recordset(request->'charges') AS charge (counter text, ends bigint)
            WHERE charge.ends > moment OR EXISTS (SELECT 1 FROM ${schema}.counters c WHERE c.name = charge.counter AND c.ends_at > moment)
        ) AS concerned GROUP BY name
      ) AS wanted;
      PERFORM ${schema}.lock_counters(counter_names, counter_ends, moment);
      WITH released AS (
        DELETE FROM ${schema}.holds h WHERE h.ticket = ticket_name RETURNING h.counter, h.amount
      ), changes AS (
        SELECT counter, sum(spent) AS spent, sum(held) AS held, max(ends) AS ends FROM (
          SELECT counter, 0 AS spent, amount AS held, 0 AS ends FROM released
          UNION ALL
          SELECT charge.counter, charge.amount, 0, charge.ends
            FROM jsonb_to_recordset(request->'charges') AS charge (counter text, amount bigint, ends bigint)
        ) AS parts GROUP BY counter
      )
      UPDATE ${schema}.counters c SET
          spent = least(${maxAmount}, c.spent + changes.spent),
          held = c.held - changes.held,
          ends_at = greatest(c.ends_at, changes.ends)
        FROM changes WHERE c.name = changes.counter;
      DELETE FROM ${schema}.tickets t WHERE t.name = ticket_name;
      INSERT INTO ${schema}.tallies AS t (name, amounts, ends_at)
        SELECT tally.name, ${schema}.add_amounts('{}', tally.amounts), coalesce(tally.ends, ${maxAmount})
          FROM jsonb_to_recordset(request->'tallies') AS tally (name text, amounts jsonb, ends bigint)
          WHERE coalesce(tally.ends, ${maxAmount}) > moment ORDER BY tally.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET
          amounts = ${schema}.add_amounts(CASE WHEN t.ends_at <= moment THEN '{}' ELSE t.amounts END, excluded.amounts),
          ends_at = CASE WHEN excluded.ends_at = ${maxAmount} THEN t.ends_at ELSE excluded.ends_at END;
      PERFORM ${schema}.append_entries(request->'entries', moment);
      RETURN '{"settled":true}';
    END $f$;
  `
}

function reads(schema: string): string {
  return `
    CREATE FUNCTION ${schema}.read_levels(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(coalesce(c.spent, 0), coalesce(c.held, 0) - coalesce(
            (SELECT sum(h.amount) FROM ${schema}.holds h WHERE h.counter = c.name AND h.lapses_at <= moment), 0))
          ORDER BY wanted.place), '[]')::text
        FROM jsonb_array_elements_text(request->'counters') WITH ORDINALITY AS wanted (name, place)
        LEFT JOIN ${schema}.counters c ON c.name = wanted.name AND c.ends_at > moment
      );
    END $f$;

    CREATE FUNCTION ${schema}.read_tallies(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := ${schema}.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(coalesce(t.amounts, '{}') ORDER BY wanted.place), '[]')::text
        FROM jsonb_array_elements_text(request->'names') WITH ORDINALITY AS wanted (name, place)
        LEFT JOIN ${schema}.tallies t ON t.name = wanted.name AND t.ends_at > moment
      );
    END $f$;
  `
}
