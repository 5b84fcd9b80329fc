-- What a restore from a backup, or a failover that may have lost commits, means for what comes after it.
-- A database that was never restored has no row here.
CREATE TABLE epochs (
    -- The first epoch, number 1, is the time before the first restore.
    epoch         BIGINT PRIMARY KEY NOT NULL CHECK (epoch >= 2),
    opened_at     BIGINT NOT NULL UNIQUE,
    -- Commits from here on may be missing.
    lost_from     BIGINT NOT NULL,
    -- Until then a new event may be one that was lost, and sent.
    guarded_until BIGINT NOT NULL,
    actor         TEXT NOT NULL
);

ALTER TABLE records ADD COLUMN restored_at BIGINT;

-- Ids of attempts that may have been made and lost, so that a callback about one finds its record.
CREATE TABLE lost_attempts (
    attempt_id TEXT PRIMARY KEY NOT NULL,
    id         TEXT NOT NULL,
    attempt    BIGINT NOT NULL,
    until      BIGINT NOT NULL
);
CREATE INDEX lost_attempts_record ON lost_attempts (id);
CREATE INDEX lost_attempts_until ON lost_attempts (until);
