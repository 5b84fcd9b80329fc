-- The log: facts in the order in which they were sealed, as a Merkle tree whose heads are signed.

-- Facts that wait for their place in the log. A trigger puts them here with the fact's own commit, so that
-- no fact can miss the log, whoever commits late.
CREATE TABLE log_pending (
    fact_no INTEGER PRIMARY KEY NOT NULL
);
INSERT INTO log_pending (fact_no) SELECT fact_no FROM facts;

CREATE TRIGGER facts_logged AFTER INSERT ON facts
BEGIN
    INSERT INTO log_pending (fact_no) VALUES (NEW.fact_no);
END;

-- One row a place in the log, counted from 0 without gaps. The hash stays when the fact is purged.
CREATE TABLE log_leaves (
    log_index INTEGER PRIMARY KEY NOT NULL,
    fact_no   BIGINT NOT NULL UNIQUE,
    leaf_hash TEXT NOT NULL
);

-- Roots of full tiles: what proofs need besides the leaves.
CREATE TABLE log_tiles (
    level BIGINT NOT NULL CHECK (level >= 1),
    tile  BIGINT NOT NULL,
    hash  TEXT NOT NULL,
    PRIMARY KEY (level, tile)
);

-- Signed heads.
CREATE TABLE log_checkpoints (
    size      INTEGER PRIMARY KEY NOT NULL,
    root      TEXT NOT NULL,
    note      TEXT NOT NULL,
    sealed_at BIGINT NOT NULL
);

-- The log's name and its growing edge.
CREATE TABLE log_state (
    one    BIGINT PRIMARY KEY NOT NULL CHECK (one = 1),
    origin TEXT NOT NULL,
    size   BIGINT NOT NULL,
    edge   TEXT NOT NULL
);

-- Public keys in the order in which they came into force.
CREATE TABLE log_keys (
    place     BIGINT PRIMARY KEY NOT NULL,
    vkey      TEXT NOT NULL UNIQUE,
    from_size BIGINT NOT NULL,
    since     BIGINT NOT NULL
);

-- Ranges whose facts were removed at the end of their retention, each named by a fact of its own.
CREATE TABLE log_purges (
    purge_no   BIGINT PRIMARY KEY NOT NULL,
    from_index BIGINT NOT NULL,
    to_index   BIGINT NOT NULL CHECK (to_index > from_index),
    fact_no    BIGINT NOT NULL,
    begun_at   BIGINT NOT NULL,
    done_at    BIGINT
);

-- What must not be purged: a seller's events, or what happened in a time.
CREATE TABLE log_holds (
    hold_id   TEXT PRIMARY KEY NOT NULL,
    seller_id TEXT,
    from_at   BIGINT,
    to_at     BIGINT,
    actor     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    since     BIGINT NOT NULL,
    ended_at  BIGINT,
    ended_by  TEXT,
    CHECK (seller_id IS NOT NULL OR (from_at IS NOT NULL AND to_at IS NOT NULL))
);

CREATE TRIGGER log_leaves_update BEFORE UPDATE ON log_leaves
WHEN 1 = 1
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;

CREATE TRIGGER log_leaves_delete BEFORE DELETE ON log_leaves
WHEN 1 = 1
BEGIN
    SELECT RAISE(ABORT, 'the log is append-only');
END;

-- A fact leaves only as part of a purge that is under way and whose own fact is in the log.
DROP TRIGGER facts_delete;
CREATE TRIGGER facts_delete BEFORE DELETE ON facts
WHEN NOT EXISTS (
        SELECT 1 FROM log_leaves l
          JOIN log_purges p ON p.done_at IS NULL AND l.log_index >= p.from_index AND l.log_index < p.to_index
          JOIN log_leaves s ON s.fact_no = p.fact_no
          WHERE l.fact_no = OLD.fact_no)
BEGIN
    SELECT RAISE(ABORT, 'facts are append-only');
END;

DROP TRIGGER calls_delete;
CREATE TRIGGER calls_delete BEFORE DELETE ON calls
WHEN NOT EXISTS (
        SELECT 1 FROM facts f
          JOIN log_leaves l ON l.fact_no = f.fact_no
          JOIN log_purges p ON p.done_at IS NULL AND l.log_index >= p.from_index AND l.log_index < p.to_index
          JOIN log_leaves s ON s.fact_no = p.fact_no
          WHERE f.id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'calls are append-only');
END;
