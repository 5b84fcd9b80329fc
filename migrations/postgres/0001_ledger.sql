-- The ledger: records, outbox, facts, calls, freezes, and who may use them.

-- The permitted transitions: the same rows as the rules' table in the code (a test compares them).
-- The first state is '' for admission.
CREATE TABLE transitions (
    old_state TEXT NOT NULL,
    new_state TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (old_state, new_state, reason)
);
INSERT INTO transitions (old_state, new_state, reason) VALUES
    ('', 'accepted', 'admitted'),
    ('accepted', 'dispatching', 'claimed'),
    ('accepted', 'expired', 'expired_in_queue'),
    ('accepted', 'expired', 'expired_while_frozen'),
    ('accepted', 'failed_final', 'cancelled'),
    ('accepted', 'failed_final', 'token_consumed'),
    ('accepted', 'failed_final', 'token_superseded'),
    ('accepted', 'sent', 'reconciled_found'),
    ('accepted', 'delivered', 'reconciled_delivered'),
    ('accepted', 'failed_final', 'reconciled_failed'),
    ('accepted', 'dispatch_unknown', 'restored'),
    ('dispatching', 'sent', 'provider_accepted'),
    ('dispatching', 'accepted', 'not_sent'),
    ('dispatching', 'accepted', 'rate_limited'),
    ('dispatching', 'accepted', 'transient_refusal'),
    ('dispatching', 'accepted', 'provider_stopped'),
    ('dispatching', 'accepted', 'lease_lost_before_call'),
    ('dispatching', 'accepted', 'resolver_unavailable'),
    ('dispatching', 'accepted', 'frozen_before_call'),
    ('dispatching', 'dispatch_unknown', 'timeout'),
    ('dispatching', 'dispatch_unknown', 'connection_lost'),
    ('dispatching', 'dispatch_unknown', 'ambiguous_response'),
    ('dispatching', 'dispatch_unknown', 'result_not_recorded'),
    ('dispatching', 'dispatch_unknown', 'lease_lost_after_call'),
    ('dispatching', 'dispatch_unknown', 'shutdown_during_call'),
    ('dispatching', 'dispatch_unknown', 'replay_inconclusive'),
    ('dispatching', 'dispatch_unknown', 'restored'),
    ('dispatching', 'failed_final', 'refused_permanently'),
    ('dispatching', 'failed_final', 'attempts_exhausted'),
    ('dispatching', 'failed_final', 'destination_not_found'),
    ('dispatching', 'failed_final', 'policy_country'),
    ('dispatching', 'failed_final', 'policy_price'),
    ('dispatching', 'failed_final', 'policy_limit'),
    ('dispatching', 'failed_final', 'token_consumed'),
    ('dispatching', 'failed_final', 'token_superseded'),
    ('dispatching', 'expired', 'expired_before_call'),
    ('dispatching', 'sent', 'reconciled_found'),
    ('dispatching', 'delivered', 'reconciled_delivered'),
    ('dispatching', 'failed_final', 'reconciled_failed'),
    ('dispatch_unknown', 'sent', 'reconciled_found'),
    ('dispatch_unknown', 'delivered', 'reconciled_delivered'),
    ('dispatch_unknown', 'failed_final', 'reconciled_failed'),
    ('dispatch_unknown', 'accepted', 'reconciled_absent'),
    ('dispatch_unknown', 'failed_final', 'attempts_exhausted'),
    ('dispatch_unknown', 'dispatching', 'idempotent_replay'),
    ('dispatch_unknown', 'expired', 'expired_unresolved'),
    ('sent', 'delivered', 'delivery_evidence'),
    ('sent', 'failed_final', 'undelivered');

-- One row a notification. Instants are microseconds since 1970 in UTC.
CREATE TABLE records (
    id                 TEXT PRIMARY KEY NOT NULL,
    event_id           TEXT NOT NULL UNIQUE,
    state              TEXT NOT NULL CHECK (state IN ('accepted','dispatching','dispatch_unknown','sent','delivered','failed_final','expired')),
    reason             TEXT NOT NULL,
    channel            TEXT NOT NULL CHECK (channel IN ('sms','email')),
    provider           TEXT NOT NULL,
    purpose            TEXT NOT NULL,
    seller_id          TEXT,
    request_window     TEXT,
    -- HMAC of the caller's hash; neither the token nor its plain hash is ever kept.
    token_id           TEXT,
    token_state        TEXT NOT NULL DEFAULT 'live' CHECK (token_state IN ('live','consumed','superseded')),
    -- Opaque handles, erased when the record settles.
    destination_ref    TEXT,
    reset_ref          TEXT,
    -- Keyed hashes of the same, kept for comparing requests of one window.
    destination_hash   TEXT NOT NULL,
    reset_hash         TEXT NOT NULL,
    client_id          TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL,
    expires_at         BIGINT NOT NULL,
    -- Under which lease semantics this row was written; a worker claims only what it understands.
    semantics          BIGINT NOT NULL DEFAULT 1,

    seq                BIGINT NOT NULL CHECK (seq >= 1),
    attempt            BIGINT NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 20),
    calls              BIGINT NOT NULL DEFAULT 0,
    replays            BIGINT NOT NULL DEFAULT 0,
    spent              BIGINT NOT NULL DEFAULT 0,
    authority          BIGINT NOT NULL DEFAULT 0,
    stumbles           BIGINT NOT NULL DEFAULT 0,
    due_at             BIGINT,
    replay_at          BIGINT,
    phase              TEXT NOT NULL DEFAULT 'idle' CHECK (phase IN ('idle','claimed','calling')),
    is_replay          BIGINT NOT NULL DEFAULT 0,
    fence              BIGINT NOT NULL DEFAULT 0,
    lease_owner        TEXT,
    lease_until        BIGINT,
    attempt_started_at BIGINT,
    call_by            BIGINT,
    call_ended_at      BIGINT,
    message_id         TEXT,
    reads              BIGINT NOT NULL DEFAULT 0,
    absent_at          BIGINT,
    held_attempt       BIGINT,
    held_seen          TEXT,
    held_message_id    TEXT,
    poll_until         BIGINT,
    settled_at         BIGINT,

    CHECK (calls = attempt + replays),
    CHECK ((state = 'dispatching') = (phase <> 'idle')),
    CHECK ((state = 'dispatching') = (lease_until IS NOT NULL)),
    CHECK (state NOT IN ('delivered','failed_final','expired') OR settled_at IS NOT NULL),
    CHECK (settled_at IS NULL OR (destination_ref IS NULL AND reset_ref IS NULL))
);
CREATE UNIQUE INDEX records_window ON records (seller_id, purpose, request_window) WHERE request_window IS NOT NULL;
CREATE UNIQUE INDEX records_token ON records (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX records_reads ON records (due_at) WHERE due_at IS NOT NULL AND state IN ('dispatch_unknown','sent');
CREATE INDEX records_replays ON records (replay_at) WHERE replay_at IS NOT NULL;
CREATE INDEX records_leases ON records (lease_until) WHERE state = 'dispatching';
CREATE INDEX records_unknown ON records (expires_at) WHERE state = 'dispatch_unknown';
CREATE INDEX records_polls ON records (poll_until) WHERE state = 'sent' AND settled_at IS NULL;
CREATE INDEX records_frozen_out ON records (updated_at) WHERE reason = 'expired_while_frozen';
CREATE INDEX records_newest ON records (created_at, id);
CREATE INDEX records_by_state ON records (state, created_at, id);
CREATE INDEX records_by_seller ON records (seller_id, created_at, id) WHERE seller_id IS NOT NULL;

-- One row an admitted (key, event) pair: the record's own, or an alias from a converged window.
-- This row is what makes an event admitted once; it outlives the record.
CREATE TABLE admissions (
    idempotency_key TEXT PRIMARY KEY NOT NULL,
    event_id        TEXT NOT NULL UNIQUE,
    record_id       TEXT NOT NULL,
    content_hash    TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    purged_at       BIGINT
);
CREATE INDEX admissions_record ON admissions (record_id);

-- How often an admission met a record again: the first 20 are facts, then one a minute with a count.
CREATE TABLE admission_notes (
    record_id TEXT NOT NULL,
    kind      TEXT NOT NULL,
    total     BIGINT NOT NULL,
    noted     BIGINT NOT NULL,
    noted_at  BIGINT NOT NULL,
    PRIMARY KEY (record_id, kind)
);

-- What waits to be sent: one row a record in state `accepted`, written in the admission's transaction.
CREATE TABLE outbox (
    record_id  TEXT PRIMARY KEY NOT NULL REFERENCES records (id),
    channel    TEXT NOT NULL,
    provider   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    due_at     BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    semantics  BIGINT NOT NULL DEFAULT 1,
    -- Its due time is a place in the release after a freeze, not a back-off.
    is_paced   BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX outbox_due ON outbox (channel, due_at, record_id);
CREATE INDEX outbox_expiry ON outbox (expires_at);

-- The audit log. `id` is the notification's; facts without a record have a series of their own.
CREATE TABLE facts (
    fact_no             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq                 BIGINT NOT NULL,
    id                  TEXT,
    event_id            TEXT,
    at                  BIGINT NOT NULL,
    kind                TEXT NOT NULL,
    old_state           TEXT,
    new_state           TEXT,
    attempt             BIGINT,
    attempt_id          TEXT,
    reason              TEXT,
    provider            TEXT,
    provider_message_id TEXT,
    token_id            TEXT,
    actor               TEXT NOT NULL,
    detail              TEXT NOT NULL,
    UNIQUE (id, seq)
);
CREATE UNIQUE INDEX facts_series ON facts (seq) WHERE id IS NULL;
-- The duplicate guardrail is counted at every scrape; it should find nothing, quickly.
CREATE INDEX facts_duplicates ON facts (kind) WHERE kind = 'duplicate_evidence';

-- One row an attempt, written by the marker of its first call.
CREATE TABLE attempts (
    id                  TEXT NOT NULL REFERENCES records (id),
    attempt             BIGINT NOT NULL CHECK (attempt BETWEEN 1 AND 20),
    attempt_id          TEXT NOT NULL UNIQUE,
    provider            TEXT NOT NULL,
    started_at          BIGINT NOT NULL,
    -- Keyed hash of the rendered request: a replay must repeat the same bytes.
    request_hash        TEXT NOT NULL,
    fingerprint         TEXT NOT NULL,
    fingerprint_version BIGINT NOT NULL,
    PRIMARY KEY (id, attempt)
);
CREATE INDEX attempts_fingerprint ON attempts (fingerprint);

-- One row a call, written by its marker, naming the one fact that authorised it.
CREATE TABLE calls (
    id            TEXT NOT NULL,
    call          BIGINT NOT NULL CHECK (call >= 1),
    attempt       BIGINT NOT NULL,
    is_replay     BIGINT NOT NULL CHECK (is_replay IN (0, 1)),
    authorised_by BIGINT NOT NULL,
    provider      TEXT NOT NULL,
    started_at    BIGINT NOT NULL,
    call_by       BIGINT NOT NULL,
    ended_at      BIGINT,
    outcome       TEXT,
    PRIMARY KEY (id, call),
    UNIQUE (id, authorised_by),
    FOREIGN KEY (id, authorised_by) REFERENCES facts (id, seq),
    FOREIGN KEY (id, attempt) REFERENCES attempts (id, attempt)
);

-- The freeze gate: markers take it shared, freezing takes it exclusively.
CREATE TABLE gate (
    one BIGINT PRIMARY KEY NOT NULL CHECK (one = 1)
);
INSERT INTO gate (one) VALUES (1);

CREATE TABLE freezes (
    freeze_id    TEXT PRIMARY KEY NOT NULL,
    scope        TEXT NOT NULL,
    actor        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    since        BIGINT NOT NULL,
    review_at    BIGINT,
    in_flight    BIGINT NOT NULL,
    ended_at     BIGINT,
    ended_by     TEXT,
    ended_reason TEXT
);
CREATE UNIQUE INDEX freezes_active ON freezes (scope) WHERE ended_at IS NULL;

-- A provider's "too many" or a fault of our credentials pauses it for all.
CREATE TABLE provider_pauses (
    provider     TEXT PRIMARY KEY NOT NULL,
    paused_until BIGINT NOT NULL,
    code         TEXT NOT NULL,
    since        BIGINT NOT NULL
);

-- Numbers that count without gaps (the series of facts without a record).
CREATE TABLE counters (
    name  TEXT PRIMARY KEY NOT NULL,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('operator_facts', 0);

-- Check values of the keys outside the database: a process with other keys refuses to start.
CREATE TABLE key_checks (
    name       TEXT PRIMARY KEY NOT NULL,
    value      TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Settings whose change is a fact.
CREATE TABLE settings (
    name       TEXT PRIMARY KEY NOT NULL,
    value      TEXT NOT NULL,
    changed_at BIGINT NOT NULL
);

CREATE TABLE clients (
    client_id   TEXT PRIMARY KEY NOT NULL,
    name        TEXT NOT NULL UNIQUE,
    secret_hash TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    revoked_at  BIGINT
);

CREATE TABLE users (
    user_id       TEXT PRIMARY KEY NOT NULL,
    email         TEXT NOT NULL UNIQUE,
    role          TEXT NOT NULL CHECK (role IN ('support','compliance','oncall','admin')),
    password_hash TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    disabled_at   BIGINT
);

-- Sessions by the SHA-256 of their cookie: reading the table signs nobody in.
CREATE TABLE sessions (
    session_hash TEXT PRIMARY KEY NOT NULL,
    user_id      TEXT,
    data         TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE INDEX sessions_user ON sessions (user_id) WHERE user_id IS NOT NULL;

-- Failed sign-ins, by keyed hash of the account or of the address.
CREATE TABLE login_failures (
    subject    TEXT PRIMARY KEY NOT NULL,
    failures   BIGINT NOT NULL,
    last_at    BIGINT NOT NULL,
    blocked_to BIGINT NOT NULL
);

-- One-time keys of forms that act: a double click acts once.
CREATE TABLE action_keys (
    action_key TEXT PRIMARY KEY NOT NULL,
    used_at    BIGINT NOT NULL
);

CREATE TABLE workers (
    worker_id  TEXT PRIMARY KEY NOT NULL,
    version    TEXT NOT NULL,
    semantics  BIGINT NOT NULL,
    roles      TEXT NOT NULL,
    digest     TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    ticked_at  BIGINT NOT NULL
);

-- Rows come and go in the queue, and a record changes a few times in its first seconds: their dead versions
-- are cleared by count, soon, instead of by a share of a table that only grows.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, fillfactor = 70);
ALTER TABLE records SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.02, fillfactor = 80);

CREATE FUNCTION records_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('delivered','failed_final','expired') AND NEW.state <> OLD.state THEN
        RAISE EXCEPTION 'a final state never changes' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER records_final BEFORE UPDATE OF state ON records FOR EACH ROW EXECUTE FUNCTION records_final();

CREATE FUNCTION records_fact() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> OLD.state AND NOT EXISTS (
        SELECT 1 FROM facts f WHERE f.id = NEW.id AND f.seq > OLD.seq AND f.seq <= NEW.seq
          AND f.kind = 'transition' AND f.new_state = NEW.state) THEN
        RAISE EXCEPTION 'a change of state needs its fact' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER records_fact BEFORE UPDATE OF state ON records FOR EACH ROW EXECUTE FUNCTION records_fact();

CREATE FUNCTION records_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id <> OLD.id OR NEW.event_id <> OLD.event_id OR NEW.created_at <> OLD.created_at OR NEW.expires_at <> OLD.expires_at THEN
        RAISE EXCEPTION 'what was admitted never changes' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER records_event BEFORE UPDATE OF id, event_id, created_at, expires_at ON records FOR EACH ROW EXECUTE FUNCTION records_event();

CREATE FUNCTION facts_legal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.kind = 'transition' AND NOT EXISTS (
        SELECT 1 FROM transitions t WHERE t.old_state = COALESCE(NEW.old_state, '')
          AND t.new_state = NEW.new_state AND t.reason = NEW.reason) THEN
        RAISE EXCEPTION 'this transition is not permitted' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER facts_legal BEFORE INSERT ON facts FOR EACH ROW EXECUTE FUNCTION facts_legal();

CREATE FUNCTION facts_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF 1 = 1 THEN
        RAISE EXCEPTION 'facts are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER facts_update BEFORE UPDATE ON facts FOR EACH ROW EXECUTE FUNCTION facts_update();

CREATE FUNCTION facts_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF 1 = 1 THEN
        RAISE EXCEPTION 'facts are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER facts_delete BEFORE DELETE ON facts FOR EACH ROW EXECUTE FUNCTION facts_delete();

CREATE FUNCTION calls_proof() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM facts f WHERE f.id = NEW.id AND f.seq = NEW.authorised_by AND f.kind = 'transition' AND (
            (NEW.is_replay = 0 AND NEW.attempt = 1 AND f.reason = 'admitted')
            OR (NEW.is_replay = 0 AND f.attempt = NEW.attempt - 1
                AND f.reason IN ('not_sent','rate_limited','transient_refusal','provider_stopped','reconciled_absent'))
            OR (NEW.is_replay = 0 AND NEW.attempt = 1 AND f.attempt IS NULL AND f.reason = 'reconciled_absent')
            OR (NEW.is_replay = 1 AND f.attempt = NEW.attempt AND f.reason = 'idempotent_replay'))) THEN
        RAISE EXCEPTION 'a call needs the fact that authorises it' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER calls_proof BEFORE INSERT ON calls FOR EACH ROW EXECUTE FUNCTION calls_proof();

CREATE FUNCTION calls_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.call <> 1 + (SELECT COUNT(*) FROM calls c WHERE c.id = NEW.id) THEN
        RAISE EXCEPTION 'calls are counted without gaps' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER calls_order BEFORE INSERT ON calls FOR EACH ROW EXECUTE FUNCTION calls_order();

CREATE FUNCTION calls_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR NEW.id <> OLD.id OR NEW.call <> OLD.call OR NEW.attempt <> OLD.attempt
        OR NEW.is_replay <> OLD.is_replay OR NEW.authorised_by <> OLD.authorised_by OR NEW.started_at <> OLD.started_at THEN
        RAISE EXCEPTION 'the row of a call is only closed, once' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER calls_update BEFORE UPDATE ON calls FOR EACH ROW EXECUTE FUNCTION calls_update();

CREATE FUNCTION calls_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF 1 = 1 THEN
        RAISE EXCEPTION 'calls are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER calls_delete BEFORE DELETE ON calls FOR EACH ROW EXECUTE FUNCTION calls_delete();
