DO $migrate$
    DECLARE version integer;
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('sluice migrate sluice', 0));
      CREATE SCHEMA IF NOT EXISTS sluice;
      CREATE TABLE IF NOT EXISTS sluice.migrations (
        version integer PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
      );
      SELECT coalesce(max(m.version), 0) INTO version FROM sluice.migrations m;
      IF version > 1 THEN
        RAISE EXCEPTION 'The schema sluice has version %, and this version of sluice knows 1 at most. Update sluice.', version;
      END IF;
      
      IF version < 1 THEN
        
    CREATE TABLE sluice.entries (
      key text COLLATE "C" PRIMARY KEY,
      id bigint GENERATED ALWAYS AS IDENTITY,
      value text NOT NULL,
      bytes bigint NOT NULL,
      pool text NOT NULL,
      share text COLLATE "C" NOT NULL,
      ends_at bigint NOT NULL
    );
    CREATE INDEX entries_by_share ON sluice.entries (pool, share, id);
    CREATE INDEX entries_by_end ON sluice.entries (ends_at) WHERE pool = 'expiring';

    CREATE SEQUENCE sluice.log_entry_ids;
    CREATE TABLE sluice.log_entries (
      id bigint NOT NULL DEFAULT nextval('sluice.log_entry_ids'),
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
    CREATE TABLE sluice.log_entries_other PARTITION OF sluice.log_entries DEFAULT;
    CREATE INDEX log_entries_by_log ON sluice.log_entries (log, writer, id);
    CREATE INDEX log_entries_by_share ON sluice.log_entries (share, id);
    CREATE INDEX log_entries_by_end ON sluice.log_entries (ends_at);

    CREATE TABLE sluice.shares (
      pool text NOT NULL,
      share text COLLATE "C" NOT NULL,
      entries bigint NOT NULL DEFAULT 0,
      bytes bigint NOT NULL DEFAULT 0,
      PRIMARY KEY (pool, share)
    );

    CREATE TABLE sluice.counters (
      name text COLLATE "C" PRIMARY KEY,
      spent bigint NOT NULL DEFAULT 0,
      held bigint NOT NULL DEFAULT 0,
      ends_at bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX counters_by_end ON sluice.counters (ends_at);
    CREATE TABLE sluice.tickets (name text COLLATE "C" PRIMARY KEY, lapses_at bigint NOT NULL);
    CREATE INDEX tickets_by_lapse ON sluice.tickets (lapses_at);
    CREATE TABLE sluice.holds (
      ticket text COLLATE "C" NOT NULL,
      counter text COLLATE "C" NOT NULL,
      amount bigint NOT NULL,
      lapses_at bigint NOT NULL,
      PRIMARY KEY (ticket, counter)
    );
    CREATE INDEX holds_by_counter ON sluice.holds (counter, lapses_at);
    CREATE TABLE sluice.tallies (
      name text COLLATE "C" PRIMARY KEY,
      amounts jsonb NOT NULL,
      ends_at bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX tallies_by_end ON sluice.tallies (ends_at);
  
    CREATE FUNCTION sluice.now_of(request jsonb) RETURNS bigint LANGUAGE sql VOLATILE AS $f$
      SELECT coalesce((request->>'now')::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    $f$;
  
    CREATE FUNCTION sluice.lock_counters(counter_names text[], counter_ends bigint[], moment bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE locked integer;
    BEGIN
      LOOP
        INSERT INTO sluice.counters (name, ends_at)
          SELECT wanted.name, wanted.ends_at FROM unnest(counter_names, counter_ends) AS wanted (name, ends_at)
          WHERE NOT EXISTS (SELECT 1 FROM sluice.counters c WHERE c.name = wanted.name)
          ORDER BY wanted.name COLLATE "C" ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked FROM (
          SELECT 1 FROM sluice.counters c WHERE c.name = ANY (counter_names) ORDER BY c.name FOR UPDATE
        ) AS rows;
        EXIT WHEN locked = cardinality(counter_names);
      END LOOP;
      WITH gone AS (
        DELETE FROM sluice.holds h WHERE h.counter = ANY (counter_names) AND h.lapses_at <= moment
        RETURNING h.counter, h.amount
      ), sums AS (SELECT counter, sum(amount) AS amount FROM gone GROUP BY counter)
      UPDATE sluice.counters c SET held = c.held - sums.amount FROM sums WHERE c.name = sums.counter;
      IF EXISTS (SELECT 1 FROM sluice.counters c WHERE c.name = ANY (counter_names) AND c.ends_at <= moment) THEN
        DELETE FROM sluice.holds h USING sluice.counters c
          WHERE h.counter = c.name AND c.name = ANY (counter_names) AND c.ends_at <= moment;
        UPDATE sluice.counters c SET spent = 0, held = 0 WHERE c.name = ANY (counter_names) AND c.ends_at <= moment;
      END IF;
    END $f$;
  
    CREATE FUNCTION sluice.decide(claims jsonb, minimum bigint, moment bigint) RETURNS jsonb
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
            SELECT least(9007199254740991, c.spent + c.held - coalesce(
              (SELECT sum(h.amount) FROM sluice.holds h WHERE h.counter = c.name AND h.lapses_at <= moment), 0))
            FROM sluice.counters c WHERE c.name = wanted.counter AND c.ends_at > moment), 0)::bigint AS level
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

    CREATE FUNCTION sluice.reserve(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      claims jsonb := request->'claims';
      minimum bigint := (request->>'least')::bigint;
      moment bigint := sluice.now_of(request);
      lapses bigint := moment + (request->>'lapsesAfter')::bigint;
      decision jsonb;
      ended text;
      counter_names text[];
      counter_ends bigint[];
      granted bigint;
      levels jsonb;
    BEGIN
      IF EXISTS (SELECT 1 FROM sluice.tickets t WHERE t.name = request->>'ticket') THEN RETURN '{"error":"taken"}'; END IF;
      SELECT wanted.counter INTO ended FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint)
        WHERE wanted.ends <= moment LIMIT 1;
      IF ended IS NOT NULL THEN RETURN jsonb_build_object('error', 'ended', 'counter', ended)::text; END IF;
      decision := sluice.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      SELECT coalesce(array_agg(wanted.counter), '{}'), coalesce(array_agg(wanted.ends), '{}') INTO counter_names, counter_ends
        FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint);
      PERFORM sluice.lock_counters(counter_names, counter_ends, moment);
      decision := sluice.decide(claims, minimum, moment);
      IF decision ? 'refused' THEN RETURN decision::text; END IF;
      granted := (decision->>'granted')::bigint;
      WITH taken AS (
        SELECT wanted.counter, wanted.ends, CASE WHEN wanted.elastic THEN granted ELSE wanted.amount END AS amount
        FROM jsonb_to_recordset(claims) AS wanted (counter text, ends bigint, amount bigint, elastic boolean)
      ), holds AS (
        INSERT INTO sluice.holds (ticket, counter, amount, lapses_at)
        SELECT request->>'ticket', taken.counter, taken.amount, lapses FROM taken
      )
      UPDATE sluice.counters c SET held = c.held + taken.amount, ends_at = greatest(c.ends_at, taken.ends)
        FROM taken WHERE c.name = taken.counter;
      INSERT INTO sluice.tickets (name, lapses_at) VALUES (request->>'ticket', lapses);
      SELECT coalesce(jsonb_agg(
          (decision->'levels'->>wanted.place)::bigint + CASE WHEN wanted.elastic THEN granted ELSE wanted.amount END
          ORDER BY wanted.place), '[]')
        INTO levels FROM jsonb_to_recordset(claims) AS wanted (place integer, amount bigint, elastic boolean);
      RETURN jsonb_build_object('granted', granted, 'levels', levels)::text;
    END $f$;
  
    CREATE FUNCTION sluice.add_amounts(present jsonb, added jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $f$
      SELECT coalesce(jsonb_object_agg(field, greatest(-9007199254740991, least(9007199254740991,
        coalesce((present->>field)::numeric, 0) + coalesce((added->>field)::numeric, 0)))), '{}')
      FROM jsonb_object_keys(present || added) AS field
      WHERE present ? field OR (SELECT count(*) FROM jsonb_object_keys(present)) < 4096
    $f$;

    CREATE FUNCTION sluice.settle(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      ticket_name text := request->>'ticket';
      moment bigint := sluice.now_of(request);
      counter_names text[];
      counter_ends bigint[];
    BEGIN
      PERFORM 1 FROM sluice.tickets t WHERE t.name = ticket_name AND t.lapses_at + 7200000 > moment FOR UPDATE;
      IF NOT FOUND THEN RETURN '{"settled":false}'; END IF;
      -- A charge to a counter that has ended and is gone is dropped: no request can read it.
      SELECT coalesce(array_agg(wanted.name), '{}'), coalesce(array_agg(wanted.ends_at), '{}') INTO counter_names, counter_ends FROM (
        SELECT name, max(ends_at) AS ends_at FROM (
          SELECT c.name, c.ends_at FROM sluice.counters c JOIN sluice.holds h ON h.counter = c.name
            WHERE h.ticket = ticket_name
          UNION ALL
          SELECT charge.counter, charge.ends FROM jsonb_to_recordset(request->'charges') AS charge (counter text, ends bigint)
            WHERE charge.ends > moment OR EXISTS (SELECT 1 FROM sluice.counters c WHERE c.name = charge.counter AND c.ends_at > moment)
        ) AS concerned GROUP BY name
      ) AS wanted;
      PERFORM sluice.lock_counters(counter_names, counter_ends, moment);
      WITH released AS (
        DELETE FROM sluice.holds h WHERE h.ticket = ticket_name RETURNING h.counter, h.amount
      ), changes AS (
        SELECT counter, sum(spent) AS spent, sum(held) AS held, max(ends) AS ends FROM (
          SELECT counter, 0 AS spent, amount AS held, 0 AS ends FROM released
          UNION ALL
          SELECT charge.counter, charge.amount, 0, charge.ends
            FROM jsonb_to_recordset(request->'charges') AS charge (counter text, amount bigint, ends bigint)
        ) AS parts GROUP BY counter
      )
      UPDATE sluice.counters c SET
          spent = least(9007199254740991, c.spent + changes.spent),
          held = c.held - changes.held,
          ends_at = greatest(c.ends_at, changes.ends)
        FROM changes WHERE c.name = changes.counter;
      DELETE FROM sluice.tickets t WHERE t.name = ticket_name;
      INSERT INTO sluice.tallies AS t (name, amounts, ends_at)
        SELECT tally.name, sluice.add_amounts('{}', tally.amounts), coalesce(tally.ends, 9007199254740991)
          FROM jsonb_to_recordset(request->'tallies') AS tally (name text, amounts jsonb, ends bigint)
          WHERE coalesce(tally.ends, 9007199254740991) > moment ORDER BY tally.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET
          amounts = sluice.add_amounts(CASE WHEN t.ends_at <= moment THEN '{}' ELSE t.amounts END, excluded.amounts),
          ends_at = CASE WHEN excluded.ends_at = 9007199254740991 THEN t.ends_at ELSE excluded.ends_at END;
      PERFORM sluice.append_entries(request->'entries', moment);
      RETURN '{"settled":true}';
    END $f$;
  
    CREATE FUNCTION sluice.read_levels(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := sluice.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(coalesce(c.spent, 0), coalesce(c.held, 0) - coalesce(
            (SELECT sum(h.amount) FROM sluice.holds h WHERE h.counter = c.name AND h.lapses_at <= moment), 0))
          ORDER BY wanted.place), '[]')::text
        FROM jsonb_array_elements_text(request->'counters') WITH ORDINALITY AS wanted (name, place)
        LEFT JOIN sluice.counters c ON c.name = wanted.name AND c.ends_at > moment
      );
    END $f$;

    CREATE FUNCTION sluice.read_tallies(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := sluice.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(coalesce(t.amounts, '{}') ORDER BY wanted.place), '[]')::text
        FROM jsonb_array_elements_text(request->'names') WITH ORDINALITY AS wanted (name, place)
        LEFT JOIN sluice.tallies t ON t.name = wanted.name AND t.ends_at > moment
      );
    END $f$;
  
    -- Creates missing shares and locks all, in the order of their names.
    CREATE FUNCTION sluice.lock_shares(pool_name text, names text[]) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE locked integer;
    BEGIN
      LOOP
        INSERT INTO sluice.shares (pool, share)
          SELECT pool_name, wanted.name FROM unnest(names) AS wanted (name)
          WHERE NOT EXISTS (SELECT 1 FROM sluice.shares s WHERE s.pool = pool_name AND s.share = wanted.name)
          ORDER BY wanted.name COLLATE "C" ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked FROM (
          SELECT 1 FROM sluice.shares s WHERE s.pool = pool_name AND s.share = ANY (names) ORDER BY s.share FOR UPDATE
        ) AS rows;
        EXIT WHEN locked = cardinality(names);
      END LOOP;
    END $f$;

    CREATE FUNCTION sluice.count_share(pool_name text, share_name text, more bigint, more_bytes bigint) RETURNS void
    LANGUAGE sql AS $f$
      UPDATE sluice.shares SET entries = entries + more, bytes = bytes + more_bytes
        WHERE pool = pool_name AND share = share_name
    $f$;

    -- Drops the oldest values of a locked share until one of this size fits.
    CREATE FUNCTION sluice.make_room(share_name text, size bigint, max_entries bigint, max_bytes bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE freed bigint; held record;
    BEGIN
      LOOP
        SELECT s.entries, s.bytes INTO held FROM sluice.shares s WHERE s.pool = 'expiring' AND s.share = share_name;
        EXIT WHEN held.entries + 1 <= max_entries AND held.bytes + size <= max_bytes;
        DELETE FROM sluice.entries e WHERE e.key = (
          SELECT oldest.key FROM sluice.entries oldest
          WHERE oldest.pool = 'expiring' AND oldest.share = share_name ORDER BY oldest.id LIMIT 1
        ) RETURNING e.bytes INTO freed;
        EXIT WHEN freed IS NULL;
        PERFORM sluice.count_share('expiring', share_name, -1, -freed);
      END LOOP;
    END $f$;
  
    -- Writes a value, or deletes it when the request has none. The caller holds the lock of the key.
    CREATE FUNCTION sluice.put_value(request jsonb, moment bigint) RETURNS text LANGUAGE plpgsql AS $f$
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
      gone bigint;
      gone_bytes bigint;
    BEGIN
      SELECT e.pool, e.share INTO old FROM sluice.entries e WHERE e.key = key_name;
      -- Pools in the order expiring, owned: one order for all writers.
      IF old.pool = 'expiring' AND new_pool <> 'expiring' THEN PERFORM sluice.lock_shares('expiring', ARRAY[old.share]); END IF;
      IF has_value AND new_pool <> 'durable' THEN
        IF old.pool = 'owned' AND new_pool = 'expiring' THEN
          PERFORM sluice.lock_shares('expiring', ARRAY[new_share]);
          PERFORM sluice.lock_shares('owned', ARRAY[old.share]);
        ELSIF old.pool = new_pool AND old.share <> new_share THEN
          PERFORM sluice.lock_shares(new_pool, ARRAY[old.share, new_share]);
        ELSE
          PERFORM sluice.lock_shares(new_pool, ARRAY[new_share]);
        END IF;
      END IF;
      IF old.pool = 'owned' AND (NOT has_value OR new_pool = 'durable') THEN
        PERFORM sluice.lock_shares('owned', ARRAY[old.share]);
      END IF;
      -- Another writer may have dropped it meanwhile to make room.
      SELECT e.pool, e.share, e.bytes, e.ends_at INTO old FROM sluice.entries e WHERE e.key = key_name;
      IF has_value AND new_pool = 'owned' AND NOT (request->>'mustFit')::boolean THEN
        IF old.pool = 'owned' AND old.share = new_share THEN
          more_entries := 0;
          more_bytes := size - old.bytes;
        END IF;
        IF more_entries > 0 OR more_bytes > 0 THEN
          SELECT s.entries, s.bytes INTO held FROM sluice.shares s WHERE s.pool = 'owned' AND s.share = new_share;
          SELECT coalesce(sum(s.entries), 0) AS entries, coalesce(sum(s.bytes), 0) AS bytes INTO total
            FROM sluice.shares s WHERE s.pool = 'owned';
          IF held.entries + more_entries > least(max_entries, (request->'limit'->>'entries')::bigint - total.entries - more_entries)
            OR held.bytes + more_bytes > least(max_bytes, (request->'limit'->>'bytes')::bigint - total.bytes - more_bytes)
          THEN RETURN '{"full":true}'; END IF;
        END IF;
      END IF;
      IF old.pool IS NOT NULL THEN
        DELETE FROM sluice.entries e WHERE e.key = key_name;
        IF old.pool <> 'durable' THEN PERFORM sluice.count_share(old.pool, old.share, -1, -old.bytes); END IF;
      END IF;
      IF NOT has_value OR ttl <= 0 THEN
        RETURN jsonb_build_object('done', true, 'found', coalesce(old.ends_at > moment, false))::text;
      END IF;
      IF new_pool = 'expiring' THEN
        WITH ended AS (
          DELETE FROM sluice.entries e WHERE e.pool = 'expiring' AND e.share = new_share AND e.ends_at <= moment
          RETURNING e.bytes
        ) SELECT count(*), coalesce(sum(bytes), 0) INTO gone, gone_bytes FROM ended;
        PERFORM sluice.count_share('expiring', new_share, -gone, -gone_bytes);
        IF max_entries IS NOT NULL THEN PERFORM sluice.make_room(new_share, size, max_entries, max_bytes); END IF;
      END IF;
      INSERT INTO sluice.entries (key, value, bytes, pool, share, ends_at)
        VALUES (key_name, request->>'value', size, new_pool, new_share, coalesce(moment + ceil(ttl)::bigint, 9007199254740991));
      IF new_pool <> 'durable' THEN PERFORM sluice.count_share(new_pool, new_share, 1, size); END IF;
      RETURN '{"done":true}';
    END $f$;

    -- set, swap and delete. Of several writers of one key each sees what the one before it wrote.
    CREATE FUNCTION sluice.write_value(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      found_value text;
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('sluice ' || (request->>'key'), 0));
      IF request ? 'swaps' THEN
        SELECT e.value INTO found_value FROM sluice.entries e
          WHERE e.key = request->>'key' AND e.ends_at > sluice.now_of(request);
        IF found_value IS DISTINCT FROM request->>'expected' THEN RETURN '{"done":false}'; END IF;
      END IF;
      RETURN sluice.put_value(request, sluice.now_of(request));
    END $f$;
  
    CREATE FUNCTION sluice.read_value(input text) RETURNS text LANGUAGE sql VOLATILE AS $f$
      SELECT coalesce((
        SELECT jsonb_build_object('value', e.value) FROM sluice.entries e
        WHERE e.key = input::jsonb->>'key' AND (e.ends_at = 9007199254740991 OR e.ends_at > sluice.now_of(input::jsonb))
      ), '{}')::text
    $f$;

    -- Keys with a prefix follow each other in the order of bytes: the caller stops at the first one without it.
    CREATE FUNCTION sluice.list_keys(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := sluice.now_of(request);
    BEGIN
      RETURN (
        SELECT coalesce(jsonb_agg(page.key ORDER BY page.key), '[]')::text FROM (
          SELECT e.key FROM sluice.entries e
          WHERE e.key >= request->>'prefix' AND e.key > coalesce(request->>'after', '') AND e.ends_at > moment
          ORDER BY e.key LIMIT (request->>'limit')::bigint
        ) AS page
      );
    END $f$;
  
    CREATE FUNCTION sluice.append_entry(entry jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE
      share_name text := entry->>'share';
      size bigint := (entry->>'bytes')::bigint;
      held record;
      freed bigint;
    BEGIN
      PERFORM sluice.lock_shares('logs', ARRAY[share_name]);
      LOOP
        EXIT WHEN NOT entry ? 'quota';
        SELECT s.entries, s.bytes INTO held FROM sluice.shares s WHERE s.pool = 'logs' AND s.share = share_name;
        EXIT WHEN held.entries + 1 <= (entry->'quota'->>'entries')::bigint
          AND held.bytes + size <= (entry->'quota'->>'bytes')::bigint;
        DELETE FROM sluice.log_entries e USING (
          SELECT oldest.happened_at, oldest.id FROM sluice.log_entries oldest
          WHERE oldest.share = share_name ORDER BY oldest.id LIMIT 1
        ) AS first WHERE e.happened_at = first.happened_at AND e.id = first.id RETURNING e.bytes INTO freed;
        EXIT WHEN freed IS NULL;
        PERFORM sluice.count_share('logs', share_name, -1, -freed);
      END LOOP;
      INSERT INTO sluice.log_entries (log, happened_at, value, bytes, share, ends_at) VALUES (
        entry->>'log', (entry->>'at')::numeric::bigint, entry->>'value', size, share_name,
        coalesce(moment + ceil((entry->>'ttl')::numeric)::bigint, 9007199254740991));
      PERFORM sluice.count_share('logs', share_name, 1, size);
    END $f$;

    -- Entries in the order of their shares: one order of locks for all writers.
    CREATE FUNCTION sluice.append_entries(entries jsonb, moment bigint) RETURNS void LANGUAGE plpgsql AS $f$
    DECLARE entry jsonb;
    BEGIN
      FOR entry IN SELECT value FROM jsonb_array_elements(entries) ORDER BY value->>'share' COLLATE "C" LOOP
        PERFORM sluice.append_entry(entry, moment);
      END LOOP;
    END $f$;

    CREATE FUNCTION sluice.append(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE request jsonb := input::jsonb;
    BEGIN
      PERFORM sluice.append_entries(request->'entries', sluice.now_of(request));
      RETURN '{}';
    END $f$;

    CREATE FUNCTION sluice.read_entries(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := sluice.now_of(request);
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
          SELECT e.writer, e.id, e.happened_at, e.value FROM sluice.log_entries e
          WHERE e.log = request->>'log' AND (e.writer, e.id) > (after_writer, after_id)
            AND e.writer < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
            AND e.ends_at > moment
            AND e.happened_at >= coalesce((request->>'from')::numeric, e.happened_at)
            AND e.happened_at < coalesce((request->>'to')::numeric, e.happened_at + 1)
          ORDER BY e.writer, e.id LIMIT (request->>'limit')::bigint
        ) AS page
      );
    END $f$;
  
    -- Makes the partitions of this month and the next two. A month whose entries are in the default partition keeps it.
    CREATE FUNCTION sluice.create_partitions(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      month timestamp;
      name text;
    BEGIN
      FOR ahead IN 0..2 LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
        name := 'log_entries_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass('sluice.' || name) IS NOT NULL;
        BEGIN
          EXECUTE format('CREATE TABLE sluice.%I PARTITION OF sluice.log_entries FOR VALUES FROM (%s) TO (%s)', name,
            (extract(epoch FROM month) * 1000)::bigint,
            (extract(epoch FROM month + interval '1 month') * 1000)::bigint);
        EXCEPTION WHEN check_violation OR duplicate_table THEN NULL;
        END;
      END LOOP;
      RETURN '{}';
    END $f$;

    -- Drops the oldest tenth of the largest share until the pool is within its limits.
    CREATE FUNCTION sluice.drop_from_largest(pool_name text, max_entries bigint, max_bytes bigint) RETURNS void
    LANGUAGE plpgsql AS $f$
    DECLARE total record; largest record; gone bigint; gone_bytes bigint;
    BEGIN
      FOR tries IN 1..20 LOOP
        SELECT coalesce(sum(s.entries), 0) AS entries, coalesce(sum(s.bytes), 0) AS bytes INTO total
          FROM sluice.shares s WHERE s.pool = pool_name;
        EXIT WHEN total.entries <= max_entries AND total.bytes <= max_bytes;
        SELECT s.share, greatest(1, least(500, ceil(s.entries / 10.0)))::bigint AS batch INTO largest FROM sluice.shares s WHERE s.pool = pool_name
          ORDER BY s.bytes DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        IF pool_name = 'logs' THEN
          WITH dropped AS (
            DELETE FROM sluice.log_entries e USING (
              SELECT oldest.happened_at, oldest.id FROM sluice.log_entries oldest
              WHERE oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) AS first WHERE e.happened_at = first.happened_at AND e.id = first.id RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO gone, gone_bytes FROM dropped;
        ELSE
          WITH dropped AS (
            DELETE FROM sluice.entries e WHERE e.key IN (
              SELECT oldest.key FROM sluice.entries oldest
              WHERE oldest.pool = pool_name AND oldest.share = largest.share ORDER BY oldest.id LIMIT largest.batch
            ) RETURNING e.bytes
          ) SELECT count(*), coalesce(sum(bytes), 0) INTO gone, gone_bytes FROM dropped;
        END IF;
        PERFORM sluice.count_share(pool_name, largest.share, -gone, -gone_bytes);
        EXIT WHEN gone = 0;
      END LOOP;
    END $f$;

    CREATE FUNCTION sluice.sweep(input text) RETURNS text LANGUAGE plpgsql AS $f$
    DECLARE
      request jsonb := input::jsonb;
      moment bigint := sluice.now_of(request);
      late bigint := moment - (request->>'late')::bigint;
      ended text[];
      one record;
    BEGIN
      SELECT coalesce(array_agg(rows.name), '{}') INTO ended FROM (
        SELECT c.name FROM sluice.counters c WHERE c.ends_at <= moment ORDER BY c.name LIMIT 1000 FOR UPDATE SKIP LOCKED
      ) AS rows;
      DELETE FROM sluice.holds h WHERE h.counter = ANY (ended);
      DELETE FROM sluice.counters c WHERE c.name = ANY (ended);
      DELETE FROM sluice.tickets t WHERE t.name IN (
        SELECT old.name FROM sluice.tickets old WHERE old.lapses_at <= late LIMIT 1000 FOR UPDATE SKIP LOCKED);
      DELETE FROM sluice.tallies t WHERE t.name IN (
        SELECT old.name FROM sluice.tallies old WHERE old.ends_at <= moment LIMIT 1000 FOR UPDATE SKIP LOCKED);
      FOR one IN
        SELECT s.pool, s.share FROM sluice.shares s WHERE (s.pool, s.share) IN (
          SELECT 'expiring', due.share FROM (SELECT e.share FROM sluice.entries e
            WHERE e.pool = 'expiring' AND e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS due
          UNION
          SELECT 'logs', due.share FROM (SELECT e.share FROM sluice.log_entries e
            WHERE e.ends_at <= moment ORDER BY e.ends_at LIMIT 1000) AS due
        ) ORDER BY s.share FOR UPDATE SKIP LOCKED
      LOOP
        IF one.pool = 'logs' THEN
          WITH gone AS (DELETE FROM sluice.log_entries e WHERE e.share = one.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE sluice.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM gone) AS sums
            WHERE s.pool = one.pool AND s.share = one.share;
        ELSE
          WITH gone AS (DELETE FROM sluice.entries e
            WHERE e.pool = 'expiring' AND e.share = one.share AND e.ends_at <= moment RETURNING e.bytes)
          UPDATE sluice.shares s SET entries = s.entries - sums.entries, bytes = s.bytes - sums.bytes
            FROM (SELECT count(*) AS entries, coalesce(sum(bytes), 0) AS bytes FROM gone) AS sums
            WHERE s.pool = one.pool AND s.share = one.share;
        END IF;
      END LOOP;
      PERFORM sluice.drop_from_largest('expiring', (request->'limits'->'expiring'->>'entries')::bigint,
        (request->'limits'->'expiring'->>'bytes')::bigint);
      PERFORM sluice.drop_from_largest('logs', (request->'limits'->'logs'->>'entries')::bigint,
        (request->'limits'->'logs'->>'bytes')::bigint);
      DELETE FROM sluice.shares s WHERE (s.pool, s.share) IN (
        SELECT empty.pool, empty.share FROM sluice.shares empty WHERE empty.entries = 0 LIMIT 1000 FOR UPDATE SKIP LOCKED);
      RETURN '{}';
    END $f$;
  
        INSERT INTO sluice.migrations (version) VALUES (1);
      END IF;
    END
    $migrate$