-- Uses of tokens. The key is what makes a token used once, however many ask at the same time.
CREATE TABLE token_uses (
    token_id     TEXT PRIMARY KEY NOT NULL,
    record_id    TEXT NOT NULL,
    -- Keyed hash of the caller's consume_id, if it gave one: the same one gets the first answer again.
    consume_hash TEXT,
    client_id    TEXT NOT NULL,
    consumed_at  BIGINT NOT NULL
);

CREATE FUNCTION token_uses_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a use of a token never changes' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER token_uses_update BEFORE UPDATE ON token_uses FOR EACH ROW EXECUTE FUNCTION token_uses_update();

-- A token that is used or replaced stays so.
CREATE FUNCTION records_token_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.token_state <> 'live' AND NEW.token_state <> OLD.token_state THEN
        RAISE EXCEPTION 'a token that is used or replaced stays so' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER records_token_state BEFORE UPDATE OF token_state ON records FOR EACH ROW EXECUTE FUNCTION records_token_state();

-- The tokens of a seller that still work, oldest first.
CREATE INDEX records_live_tokens ON records (seller_id, purpose, created_at, id)
    WHERE token_state = 'live' AND token_id IS NOT NULL;

-- Whether a seller's earlier request is unknown is asked at each admission.
CREATE INDEX records_seller_unknown ON records (seller_id, purpose, created_at, id) WHERE state = 'dispatch_unknown';

-- Hits of a limit by slices of its window: the sum over a window is never too low, and at most one slice
-- too high. The subject is a keyed hash of what is limited.
CREATE TABLE limit_slices (
    subject  TEXT NOT NULL,
    slice_at BIGINT NOT NULL,
    hits     BIGINT NOT NULL,
    -- From here on nobody counts it any more.
    over_at  BIGINT NOT NULL,
    PRIMARY KEY (subject, slice_at)
);
CREATE INDEX limit_slices_over ON limit_slices (over_at);

-- Text messages by country and minute: sent, their price in millionths, and stopped by a rule.
CREATE TABLE country_slices (
    country  TEXT NOT NULL,
    slice_at BIGINT NOT NULL,
    messages BIGINT NOT NULL,
    price    BIGINT NOT NULL,
    stopped  BIGINT NOT NULL,
    PRIMARY KEY (country, slice_at)
);
CREATE INDEX country_slices_time ON country_slices (slice_at);

-- One row a country whose breaker was ever asked; markers of the country hold it while they count.
CREATE TABLE country_breakers (
    country      TEXT PRIMARY KEY NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('closed','open','half_open')),
    -- What opened it last.
    cause        TEXT CHECK (cause IN ('count','price')),
    since        BIGINT NOT NULL,
    -- Older messages count no more: it was closed then.
    counted_from BIGINT NOT NULL,
    -- Messages let through since it is half open.
    probes       BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    reason       TEXT
);
