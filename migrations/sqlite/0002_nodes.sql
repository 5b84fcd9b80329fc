-- Work that one process at a time does for all: one row a duty. The fence grows with each new holder.
CREATE TABLE duties (
    name        TEXT PRIMARY KEY NOT NULL,
    holder      TEXT NOT NULL,
    fence       BIGINT NOT NULL,
    lease_until BIGINT NOT NULL
);
