-- What is counted beside the ledger, and the alerts that are made of it.

-- Counts that are not yet folded. A transaction that changes a record adds lines here and shares no row with
-- any other, so counting costs no lock. `at` is the start of a minute in UTC.
CREATE TABLE tally_log (
    tally_no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    metric   TEXT NOT NULL,
    label    TEXT NOT NULL,
    at       BIGINT NOT NULL,
    n        BIGINT NOT NULL
);

-- The same, folded: by minute (60), by hour (3600), and in all (0, at 0).
CREATE TABLE tallies (
    metric TEXT NOT NULL,
    label  TEXT NOT NULL,
    width  BIGINT NOT NULL CHECK (width IN (0, 60, 3600)),
    at     BIGINT NOT NULL,
    n      BIGINT NOT NULL,
    PRIMARY KEY (width, metric, label, at)
);
CREATE INDEX tallies_age ON tallies (width, at);

-- Records that were called more than once: what the duplicate guardrail looks through.
CREATE INDEX records_repeated ON records (updated_at) WHERE calls > 1;

-- What each process knows of itself alone.
CREATE TABLE node_gauges (
    worker_id TEXT NOT NULL,
    name      TEXT NOT NULL,
    value     BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (worker_id, name)
);

-- One row an alert: a condition, from its first sight until it is over.
CREATE TABLE alerts (
    alert_id   TEXT PRIMARY KEY NOT NULL,
    rule       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    severity   TEXT NOT NULL CHECK (severity IN ('page','ticket')),
    state      TEXT NOT NULL CHECK (state IN ('pending','firing','acknowledged','resolved')),
    opened_at  BIGINT NOT NULL,
    fired_at   BIGINT,
    clear_at   BIGINT,
    ended_at   BIGINT,
    updated_at BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    oldest_at  BIGINT,
    value      BIGINT NOT NULL,
    acked_at   BIGINT,
    acked_by   TEXT,
    ack_reason TEXT,
    CHECK (state NOT IN ('firing','acknowledged') OR fired_at IS NOT NULL),
    CHECK ((state = 'resolved') = (ended_at IS NOT NULL)),
    CHECK (state <> 'acknowledged' OR (acked_by IS NOT NULL AND ack_reason IS NOT NULL))
);
CREATE UNIQUE INDEX alerts_open ON alerts (rule, subject) WHERE state <> 'resolved';
CREATE INDEX alerts_ended ON alerts (ended_at) WHERE state = 'resolved';

-- What is to be told to whom about an alert, and how that went.
CREATE TABLE alert_deliveries (
    alert_id   TEXT NOT NULL REFERENCES alerts (alert_id),
    target     TEXT NOT NULL,
    event      TEXT NOT NULL CHECK (event IN ('firing','resolved')),
    state      TEXT NOT NULL CHECK (state IN ('waiting','done','given_up')),
    tries      BIGINT NOT NULL,
    next_at    BIGINT NOT NULL,
    code       TEXT,
    created_at BIGINT NOT NULL,
    done_at    BIGINT,
    PRIMARY KEY (alert_id, target, event)
);
CREATE INDEX alert_deliveries_due ON alert_deliveries (next_at) WHERE state = 'waiting';
