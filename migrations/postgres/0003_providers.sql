-- Providers: routing, recognising texts, unmatched callbacks, the read allowance, trials.

-- The provider of the next attempt, where it is another than the last one's.
ALTER TABLE records ADD COLUMN next_provider TEXT;

-- Keyed hash of the rendered text: a scan recognises the message by it.
ALTER TABLE attempts ADD COLUMN text_hash TEXT;

-- A receipt may name its message only by the provider's id.
CREATE INDEX facts_message ON facts (provider, provider_message_id) WHERE provider_message_id IS NOT NULL;

-- Verified callbacks that met no attempt, as parsed facts; the payload is never kept.
CREATE TABLE unmatched_callbacks (
    -- Hash of what it says: a repeated callback is one row.
    callback_id TEXT PRIMARY KEY NOT NULL,
    provider    TEXT NOT NULL,
    attempt_id  TEXT,
    message_id  TEXT,
    seen        TEXT NOT NULL,
    code        TEXT,
    provider_at BIGINT,
    first_at    BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    times       BIGINT NOT NULL,
    -- When its message became known after all.
    matched_at  BIGINT
);
CREATE INDEX unmatched_callbacks_message ON unmatched_callbacks (provider, message_id) WHERE matched_at IS NULL;
CREATE INDEX unmatched_callbacks_age ON unmatched_callbacks (first_at);

-- One row a provider: the bucket that its look-ups are paid from, shared by all processes, and the last one.
CREATE TABLE provider_reads (
    provider    TEXT PRIMARY KEY NOT NULL,
    -- Millionths of a look-up.
    level       BIGINT NOT NULL,
    refilled_at BIGINT NOT NULL,
    taken       BIGINT NOT NULL,
    deferred    BIGINT NOT NULL,
    last_at     BIGINT,
    last_answer TEXT,
    last_code   TEXT
);

-- The ambiguity trial's runs and what was seen in each step.
CREATE TABLE trials (
    trial_id   TEXT PRIMARY KEY NOT NULL,
    provider   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    -- 'simulator' or 'sandbox'
    target     TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL
);
CREATE INDEX trials_newest ON trials (provider, ended_at);

CREATE TABLE trial_steps (
    trial_id   TEXT NOT NULL REFERENCES trials (trial_id),
    step       BIGINT NOT NULL,
    scenario   TEXT NOT NULL,
    what       TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    message_id TEXT,
    outcome    TEXT NOT NULL,
    code       TEXT,
    at         BIGINT NOT NULL,
    PRIMARY KEY (trial_id, step)
);
