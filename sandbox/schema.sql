-- What the shop keeps. Every effect, its objects and its idempotency answer are written in one transaction.

-- Every object the APIs show, newest last. The body is the JSON exactly as shown; the columns are what lists filter by.
CREATE TABLE IF NOT EXISTS objects (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    kind           TEXT NOT NULL,
    created        INTEGER NOT NULL,
    order_id       TEXT,
    payment_intent TEXT,
    parent         TEXT,  -- the charge of a refund or dispute, the source of a balance transaction
    tag            TEXT,  -- the type of an event or balance transaction
    body           TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS objects_by_time ON objects (kind, created, seq);
CREATE INDEX IF NOT EXISTS objects_by_order ON objects (order_id, kind) WHERE order_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS objects_by_payment_intent ON objects (payment_intent, kind) WHERE payment_intent IS NOT NULL;
CREATE INDEX IF NOT EXISTS objects_by_parent ON objects (parent, kind) WHERE parent IS NOT NULL;

-- The log of effects: what really happened, in the order in which it happened. This is what proofs are judged by.
CREATE TABLE IF NOT EXISTS effects (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind            TEXT NOT NULL,
    object_id       TEXT NOT NULL,
    parent_id       TEXT,
    order_id        TEXT,
    compensation_id TEXT,
    amount          INTEGER,
    currency        TEXT,
    quantity        INTEGER,
    idempotency_key TEXT,
    request_id      TEXT,
    at              REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS effects_by_order ON effects (order_id) WHERE order_id IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS effects_never_change BEFORE UPDATE ON effects
BEGIN SELECT RAISE(ABORT, 'the log of effects is append-only'); END;
CREATE TRIGGER IF NOT EXISTS effects_never_go BEFORE DELETE ON effects
BEGIN SELECT RAISE(ABORT, 'the log of effects is append-only'); END;

-- The stored answer of each idempotency key.
CREATE TABLE IF NOT EXISTS answers (
    scope       TEXT NOT NULL,
    key         TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;

-- Every request that reached a service, whatever became of it. A status of NULL means that no answer was sent.
CREATE TABLE IF NOT EXISTS calls (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    at              REAL NOT NULL,
    endpoint        TEXT NOT NULL,
    operation       TEXT NOT NULL,
    idempotency_key TEXT,
    order_id        TEXT,
    fault           TEXT,
    status          INTEGER,
    replayed        INTEGER NOT NULL,
    request_id      TEXT NOT NULL
);

-- With which payout a movement of the balance left.
CREATE TABLE IF NOT EXISTS payout_items (
    payout    TEXT NOT NULL,
    object_id TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS payout_items_by_payout ON payout_items (payout);

CREATE TABLE IF NOT EXISTS stock (
    sku       TEXT PRIMARY KEY,
    available INTEGER NOT NULL CHECK (available >= 0)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
