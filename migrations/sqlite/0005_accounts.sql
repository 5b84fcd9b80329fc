-- Operators' second factors, sign-in by an identity provider, set-up links.

-- Somebody else chose the password: it must be changed at the next sign-in.
ALTER TABLE users ADD COLUMN must_change BIGINT NOT NULL DEFAULT 0;

-- One row an operator who has begun to set up a second factor.
CREATE TABLE second_factors (
    user_id      TEXT PRIMARY KEY NOT NULL,
    -- With a key outside the database it gives the shared secret; alone it gives nothing.
    nonce        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    -- Asked for at sign-in only once the operator has shown a right code.
    confirmed_at BIGINT,
    -- The newest time step whose code was accepted: no code works twice.
    step         BIGINT NOT NULL DEFAULT 0
);

-- Codes for the day the device is lost, by keyed hash; each works once.
CREATE TABLE recovery_codes (
    user_id   TEXT NOT NULL,
    code_hash TEXT NOT NULL,
    used_at   BIGINT,
    PRIMARY KEY (user_id, code_hash)
);

-- Who an identity provider's subject is here, by keyed hash of issuer and subject.
CREATE TABLE identities (
    subject_hash TEXT PRIMARY KEY NOT NULL,
    user_id      TEXT NOT NULL,
    created_at   BIGINT NOT NULL
);

-- Links for the first operator, by hash; worth nothing once there is one.
CREATE TABLE setup_links (
    link_hash  TEXT PRIMARY KEY NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The operators' log is read newest first, mostly for one person.
CREATE INDEX facts_by_actor ON facts (actor, seq) WHERE id IS NULL;
