
  CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    pool TEXT NOT NULL,
    share TEXT NOT NULL,
    expires_at INTEGER NOT NULL
  );
  CREATE INDEX entries_by_share ON entries (pool, share, id);
  CREATE INDEX entries_by_end ON entries (expires_at);

  CREATE TABLE log_entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    log TEXT NOT NULL,
    at INTEGER NOT NULL,
    value TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    share TEXT NOT NULL,
    expires_at INTEGER NOT NULL
  );
  CREATE INDEX log_entries_by_log ON log_entries (log, id);
  CREATE INDEX log_entries_by_share ON log_entries (share, id);
  CREATE INDEX log_entries_by_end ON log_entries (expires_at);

  CREATE TABLE shares (
    pool TEXT NOT NULL,
    share TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (pool, share)
  ) WITHOUT ROWID;
  CREATE INDEX shares_by_size ON shares (pool, bytes);
  CREATE TABLE pools (pool TEXT PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO pools VALUES ('durable', 0, 0), ('owned', 0, 0), ('expiring', 0, 0), ('logs', 0, 0);

  
  CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
    INSERT INTO shares VALUES (NEW.pool, NEW.share, 1, NEW.bytes)
      ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    UPDATE pools SET entries = entries + 1, bytes = bytes + NEW.bytes WHERE pool = NEW.pool;
  END;
  CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
    UPDATE shares SET entries = entries - 1, bytes = bytes - OLD.bytes
      WHERE pool = OLD.pool AND share = OLD.share;
    DELETE FROM shares WHERE pool = OLD.pool AND share = OLD.share AND entries = 0;
    UPDATE pools SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE pool = OLD.pool;
  END;
  
  CREATE TRIGGER log_entries_added AFTER INSERT ON log_entries BEGIN
    INSERT INTO shares VALUES ('logs', NEW.share, 1, NEW.bytes)
      ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    UPDATE pools SET entries = entries + 1, bytes = bytes + NEW.bytes WHERE pool = 'logs';
  END;
  CREATE TRIGGER log_entries_removed AFTER DELETE ON log_entries BEGIN
    UPDATE shares SET entries = entries - 1, bytes = bytes - OLD.bytes
      WHERE pool = 'logs' AND share = OLD.share;
    DELETE FROM shares WHERE pool = 'logs' AND share = OLD.share AND entries = 0;
    UPDATE pools SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE pool = 'logs';
  END;

  CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    spent INTEGER NOT NULL,
    held INTEGER NOT NULL,
    ends_at INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX counters_by_end ON counters (ends_at);
  CREATE TABLE tickets (name TEXT PRIMARY KEY, lapses_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX tickets_by_lapse ON tickets (lapses_at);
  CREATE TABLE holds (
    ticket TEXT NOT NULL,
    counter TEXT NOT NULL,
    amount INTEGER NOT NULL,
    lapses_at INTEGER NOT NULL,
    PRIMARY KEY (ticket, counter)
  ) WITHOUT ROWID;
  CREATE INDEX holds_by_counter ON holds (counter);
  CREATE INDEX holds_by_lapse ON holds (lapses_at);

  CREATE TABLE tallies (name TEXT PRIMARY KEY, amounts TEXT NOT NULL, ends_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX tallies_by_end ON tallies (ends_at);
  