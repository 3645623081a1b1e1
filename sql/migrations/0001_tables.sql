-- The tables of the ground floor. Every name carries its schema, so that no search_path can redirect it.

CREATE TABLE makegood.currencies (
  code text PRIMARY KEY CHECK (code ~ '^[A-Z]{3}$'),
  exponent smallint NOT NULL CHECK (exponent BETWEEN 0 AND 4)
);

INSERT INTO makegood.currencies (code, exponent) VALUES
  ('AED', 2), ('AFN', 2), ('ALL', 2), ('AMD', 2), ('AOA', 2), ('ARS', 2), ('AUD', 2), ('AWG', 2),
  ('AZN', 2), ('BAM', 2), ('BBD', 2), ('BDT', 2), ('BHD', 3), ('BIF', 0), ('BMD', 2), ('BND', 2),
  ('BOB', 2), ('BOV', 2), ('BRL', 2), ('BSD', 2), ('BTN', 2), ('BWP', 2), ('BYN', 2), ('BZD', 2),
  ('CAD', 2), ('CDF', 2), ('CHE', 2), ('CHF', 2), ('CHW', 2), ('CLF', 4), ('CLP', 0), ('CNY', 2),
  ('COP', 2), ('COU', 2), ('CRC', 2), ('CUP', 2), ('CVE', 2), ('CZK', 2), ('DJF', 0), ('DKK', 2),
  ('DOP', 2), ('DZD', 2), ('EGP', 2), ('ERN', 2), ('ETB', 2), ('EUR', 2), ('FJD', 2), ('FKP', 2),
  ('GBP', 2), ('GEL', 2), ('GHS', 2), ('GIP', 2), ('GMD', 2), ('GNF', 0), ('GTQ', 2), ('GYD', 2),
  ('HKD', 2), ('HNL', 2), ('HTG', 2), ('HUF', 2), ('IDR', 2), ('ILS', 2), ('INR', 2), ('IQD', 3),
  ('IRR', 2), ('ISK', 0), ('JMD', 2), ('JOD', 3), ('JPY', 0), ('KES', 2), ('KGS', 2), ('KHR', 2),
  ('KMF', 0), ('KPW', 2), ('KRW', 0), ('KWD', 3), ('KYD', 2), ('KZT', 2), ('LAK', 2), ('LBP', 2),
  ('LKR', 2), ('LRD', 2), ('LSL', 2), ('LYD', 3), ('MAD', 2), ('MDL', 2), ('MGA', 2), ('MKD', 2),
  ('MMK', 2), ('MNT', 2), ('MOP', 2), ('MRU', 2), ('MUR', 2), ('MVR', 2), ('MWK', 2), ('MXN', 2),
  ('MXV', 2), ('MYR', 2), ('MZN', 2), ('NAD', 2), ('NGN', 2), ('NIO', 2), ('NOK', 2), ('NPR', 2),
  ('NZD', 2), ('OMR', 3), ('PAB', 2), ('PEN', 2), ('PGK', 2), ('PHP', 2), ('PKR', 2), ('PLN', 2),
  ('PYG', 0), ('QAR', 2), ('RON', 2), ('RSD', 2), ('RUB', 2), ('RWF', 0), ('SAR', 2), ('SBD', 2),
  ('SCR', 2), ('SDG', 2), ('SEK', 2), ('SGD', 2), ('SHP', 2), ('SLE', 2), ('SOS', 2), ('SRD', 2),
  ('SSP', 2), ('STN', 2), ('SVC', 2), ('SYP', 2), ('SZL', 2), ('THB', 2), ('TJS', 2), ('TMT', 2),
  ('TND', 3), ('TOP', 2), ('TRY', 2), ('TTD', 2), ('TWD', 2), ('TZS', 2), ('UAH', 2), ('UGX', 0),
  ('USD', 2), ('USN', 2), ('UYI', 0), ('UYU', 2), ('UYW', 4), ('UZS', 2), ('VED', 2), ('VES', 2),
  ('VND', 0), ('VUV', 0), ('WST', 2), ('XAD', 2), ('XAF', 0), ('XCD', 2), ('XCG', 2), ('XOF', 0),
  ('XPF', 0), ('YER', 2), ('ZAR', 2), ('ZMW', 2), ('ZWG', 2);

CREATE TABLE makegood.workflow_types (
  name text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'),
  definition jsonb NOT NULL,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE makegood.workflow_states (
  workflow_type text NOT NULL REFERENCES makegood.workflow_types (name),
  state text NOT NULL CHECK (state ~ '^[a-z][a-z0-9_]{0,62}$'),
  kind text NOT NULL CHECK (kind IN ('initial', 'doing', 'done', 'compensating', 'terminal')),
  step text,
  stuck_after interval NOT NULL CHECK (stuck_after > interval '0'),
  PRIMARY KEY (workflow_type, state),
  -- Terminal are exactly these three, in every type: people paste queries that say so.
  CHECK ((kind = 'terminal') = (state IN ('completed', 'failed', 'compensated'))),
  CHECK ((kind = 'compensating') = (state = 'compensating')),
  CHECK ((kind IN ('doing', 'done')) = (step IS NOT NULL))
);

CREATE TABLE makegood.workflow_edges (
  workflow_type text NOT NULL,
  from_state text NOT NULL,
  to_state text NOT NULL CHECK (to_state <> from_state),
  PRIMARY KEY (workflow_type, from_state, to_state),
  FOREIGN KEY (workflow_type, from_state) REFERENCES makegood.workflow_states,
  FOREIGN KEY (workflow_type, to_state) REFERENCES makegood.workflow_states,
  CHECK (from_state NOT IN ('completed', 'failed', 'compensated'))
);

-- fillfactor: claims and leases touch no indexed column, so they stay on the row's own page.
CREATE TABLE makegood.workflow_executions (
  id uuid PRIMARY KEY,
  workflow_type text NOT NULL,
  entity_id text NOT NULL CHECK (length(entity_id) BETWEEN 1 AND 150),
  current_state text NOT NULL,
  context jsonb NOT NULL DEFAULT '{}'
    CHECK (jsonb_typeof(context) = 'object' AND pg_column_size(context) <= 65536),
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  amount_minor bigint CHECK (amount_minor >= 0),
  currency text,
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_attempt_at timestamptz NOT NULL,
  deadline_at timestamptz NOT NULL,
  fence bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
  lease_owner text,
  lease_until timestamptz,
  cancel_requested boolean NOT NULL DEFAULT false,
  cancel_requested_by text,
  cancel_reason text,
  held_at timestamptz,
  held_reason text,
  finished_at timestamptz,
  traceparent text CHECK (traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
  last_seq integer NOT NULL CHECK (last_seq >= 1),
  start_hash bytea NOT NULL,
  -- The entity first: an order number alone is what people ask with.
  UNIQUE (entity_id, workflow_type),
  CHECK ((finished_at IS NOT NULL) = (current_state IN ('completed', 'failed', 'compensated'))),
  CHECK ((amount_minor IS NULL) = (currency IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
  CHECK ((held_at IS NULL) = (held_reason IS NULL)),
  CHECK (cancel_requested = (cancel_requested_by IS NOT NULL) AND cancel_requested = (cancel_reason IS NOT NULL)),
  CHECK (finished_at IS NULL OR (lease_owner IS NULL AND held_at IS NULL)),
  CHECK (updated_at >= created_at)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What a worker may take next. Finished and held rows are not in it, however many there are.
CREATE INDEX workflow_executions_due ON makegood.workflow_executions (next_attempt_at)
  WHERE finished_at IS NULL AND held_at IS NULL;
-- The published stuck query, word for word: its cost does not grow with finished work either.
CREATE INDEX workflow_executions_unfinished ON makegood.workflow_executions (updated_at)
  WHERE current_state NOT IN ('completed', 'failed', 'compensated');

-- No foreign key here and in step_attempts: its check locks, and so rewrites, the very row that the same
-- transaction has just moved, ten times per checkout. The chain's own check looks for the workflow instead,
-- and no workflow can be deleted.
CREATE TABLE makegood.workflow_transitions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workflow_id uuid NOT NULL,
  entity_id text NOT NULL,
  seq integer NOT NULL CHECK (seq >= 1),
  from_state text,
  to_state text NOT NULL,
  triggered_by text NOT NULL CHECK (length(triggered_by) BETWEEN 1 AND 200),
  metadata jsonb NOT NULL DEFAULT '{}'
    CHECK (jsonb_typeof(metadata) = 'object' AND pg_column_size(metadata) <= 16384),
  transitioned_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (workflow_id, seq),
  CHECK ((seq = 1) = (from_state IS NULL)),
  CHECK (from_state <> to_state)
);
CREATE INDEX workflow_transitions_entity ON makegood.workflow_transitions (entity_id);

CREATE TABLE makegood.step_attempts (
  workflow_id uuid NOT NULL,
  step text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('forward', 'compensation')),
  attempt integer NOT NULL CHECK (attempt >= 1),
  outcome text CHECK (outcome IN ('success', 'failed', 'unknown')),
  error_type text,
  error text CHECK (length(error) <= 2000),
  started_at timestamptz NOT NULL,
  finished_at timestamptz,
  worker text NOT NULL,
  PRIMARY KEY (workflow_id, kind, step, attempt),
  CHECK ((outcome IS NULL) = (finished_at IS NULL)),
  CHECK (outcome IS DISTINCT FROM 'success' OR error_type IS NULL),
  CHECK (outcome NOT IN ('failed', 'unknown') OR error_type IS NOT NULL)
) WITH (fillfactor = 85);

CREATE TABLE makegood.idempotency_keys (
  key text PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 255),
  operation text NOT NULL,
  request_hash bytea NOT NULL CHECK (length(request_hash) = 32),
  status text NOT NULL CHECK (status IN ('intent', 'sent', 'known', 'recorded')),
  response jsonb CHECK (pg_column_size(response) <= 65536),
  first_sent_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  caller text,
  caller_until timestamptz,
  CHECK ((status = 'intent') = (first_sent_at IS NULL)),
  CHECK ((status IN ('known', 'recorded')) = (response IS NOT NULL)),
  CHECK ((caller IS NULL) = (caller_until IS NULL)),
  CHECK (expires_at > created_at)
) WITH (fillfactor = 80);
CREATE INDEX idempotency_keys_expiry ON makegood.idempotency_keys USING brin (expires_at);

CREATE TABLE makegood.compensations (
  id uuid PRIMARY KEY,
  workflow_id uuid NOT NULL REFERENCES makegood.workflow_executions (id),
  step text NOT NULL,
  position integer NOT NULL CHECK (position >= 1),
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'succeeded', 'held')),
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_attempt_at timestamptz NOT NULL,
  idempotency_key text NOT NULL UNIQUE,
  amount_minor bigint CHECK (amount_minor >= 0),
  currency text,
  last_error text CHECK (length(last_error) <= 2000),
  result jsonb CHECK (pg_column_size(result) <= 65536),
  created_at timestamptz NOT NULL,
  succeeded_at timestamptz,
  UNIQUE (workflow_id, step),
  UNIQUE (workflow_id, position),
  CHECK ((state = 'succeeded') = (succeeded_at IS NOT NULL)),
  CHECK ((amount_minor IS NULL) = (currency IS NULL))
);
CREATE INDEX compensations_open ON makegood.compensations (next_attempt_at) WHERE state <> 'succeeded';

CREATE TABLE makegood.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL CHECK (length(topic) BETWEEN 1 AND 200),
  key text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  payload jsonb NOT NULL CHECK (pg_column_size(payload) <= 65536),
  headers jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  published_at timestamptz,
  UNIQUE (topic, key)
);
CREATE INDEX outbox_unpublished ON makegood.outbox (id) WHERE published_at IS NULL;

CREATE TABLE makegood.operator_actions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  actor text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
  action text NOT NULL,
  subject text NOT NULL,
  reason text NOT NULL CHECK (length(btrim(reason)) BETWEEN 1 AND 2000),
  details jsonb NOT NULL DEFAULT '{}',
  database_role text NOT NULL DEFAULT session_user,
  acted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX operator_actions_subject ON makegood.operator_actions (subject);
