-- What stays of a purged event: enough to answer a late retry, and nothing that tells of the person.
CREATE TABLE tombstones (
    record_id        TEXT PRIMARY KEY NOT NULL,
    -- Keyed hash of seller, purpose and window.
    window_hash      TEXT UNIQUE,
    token_id         TEXT UNIQUE,
    channel          TEXT NOT NULL,
    destination_hash TEXT NOT NULL,
    reset_hash       TEXT NOT NULL,
    purged_at        BIGINT NOT NULL
);

ALTER TABLE log_holds ADD COLUMN ended_reason TEXT;

-- What is over, in the order in which it may go.
CREATE INDEX records_over ON records (settled_at, id) WHERE settled_at IS NOT NULL;
CREATE INDEX facts_operators ON facts (at, seq) WHERE kind = 'operator';

-- A callback that names only the provider's message finds its attempt by it.
CREATE INDEX facts_messages ON facts (provider_message_id) WHERE provider_message_id IS NOT NULL;

-- An event goes only with its tombstone.
CREATE TRIGGER records_delete BEFORE DELETE ON records
WHEN NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.record_id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'a record goes only with its tombstone');
END;
