-- What the scheduled jobs need: where failures are kept, who is down, what ran and what it decided.

-- These take more parameters now; the functions are installed anew after the migration.
DROP FUNCTION IF EXISTS makegood.claim_workflows(text, double precision, integer, text[], boolean, uuid[]);

-- One row per workflow or message that failed too often, however often it comes back.
CREATE TABLE makegood.dead_letters (
  id uuid PRIMARY KEY,
  source text NOT NULL CHECK (source IN ('workflow', 'compensation', 'message')),
  broker text,
  message_id text NOT NULL CHECK (length(message_id) BETWEEN 1 AND 500),
  message_key text,
  workflow_id uuid UNIQUE,
  entity_id text,
  payload bytea NOT NULL CHECK (octet_length(payload) <= 16777216),
  headers jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object'),
  error_type text NOT NULL CHECK (length(error_type) <= 200),
  error text NOT NULL CHECK (length(error) <= 2000),
  signature text NOT NULL CHECK (length(signature) <= 300),
  attempts integer NOT NULL CHECK (attempts >= 0),
  redrives integer NOT NULL DEFAULT 0 CHECK (redrives >= 0),
  state text NOT NULL DEFAULT 'parked' CHECK (state IN ('parked', 'redriving', 'resolved', 'discarded')),
  first_failed_at timestamptz NOT NULL,
  last_failed_at timestamptz NOT NULL,
  note text CHECK (length(note) <= 2000),
  CHECK ((source = 'message') = (workflow_id IS NULL)),
  CHECK (last_failed_at >= first_failed_at)
);
-- What a person looks at: the open ones, by what went wrong.
CREATE INDEX dead_letters_open ON makegood.dead_letters (signature, last_failed_at)
  WHERE state IN ('parked', 'redriving');
CREATE INDEX dead_letters_entity ON makegood.dead_letters (entity_id);

CREATE TABLE makegood.breakers (
  provider text PRIMARY KEY CHECK (length(provider) BETWEEN 1 AND 100),
  state text NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
  opened_at timestamptz,
  retry_at timestamptz,
  failed_probes integer NOT NULL DEFAULT 0 CHECK (failed_probes >= 0),
  probe_by text,
  probe_until timestamptz,
  error text CHECK (length(error) <= 2000),
  updated_at timestamptz NOT NULL,
  CHECK ((state = 'closed') = (opened_at IS NULL)),
  CHECK ((state = 'open') = (retry_at IS NOT NULL)),
  CHECK ((state = 'half_open') = (probe_by IS NOT NULL)),
  CHECK ((probe_by IS NULL) = (probe_until IS NULL))
);

CREATE TABLE makegood.job_runs (
  id uuid PRIMARY KEY,
  job text NOT NULL CHECK (job ~ '^[a-z][a-z0-9_]{0,62}$'),
  run_key text NOT NULL CHECK (length(run_key) BETWEEN 1 AND 300),
  triggered_by text NOT NULL CHECK (length(triggered_by) BETWEEN 1 AND 200),
  parameters jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(parameters) = 'object'),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed', 'abandoned')),
  counts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),
  parts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(parts) = 'object'),
  error text CHECK (length(error) <= 2000),
  started_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  finished_at timestamptz,
  UNIQUE (job, run_key),
  CHECK ((state = 'running') = (finished_at IS NULL)),
  CHECK (expires_at > started_at)
);
CREATE INDEX job_runs_latest ON makegood.job_runs (job, started_at DESC);
CREATE INDEX job_runs_running ON makegood.job_runs (expires_at) WHERE state = 'running';

-- No foreign keys, as with transitions: both sides are kept, and a check would lock hot rows.
CREATE TABLE makegood.job_decisions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_id uuid NOT NULL,
  workflow_id uuid NOT NULL,
  entity_id text NOT NULL,
  state text NOT NULL,
  decision text NOT NULL CHECK (decision IN ('resume', 'wait', 'compensate', 'park')),
  reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 2000),
  decided_at timestamptz NOT NULL
);
CREATE INDEX job_decisions_workflow ON makegood.job_decisions (workflow_id);
CREATE INDEX job_decisions_age ON makegood.job_decisions USING brin (decided_at);

-- Somebody is sending it right now, and how often that was tried.
ALTER TABLE makegood.outbox
  ADD COLUMN taken_until timestamptz,
  ADD COLUMN attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0);

COMMENT ON COLUMN makegood.outbox.taken_until IS 'A sender has it until then; past that another may take it.';
COMMENT ON COLUMN makegood.outbox.attempts IS 'How often somebody took it to send it.';

COMMENT ON TABLE makegood.dead_letters IS 'What failed too often, kept with everything needed to understand and retry it.';
COMMENT ON COLUMN makegood.dead_letters.id IS 'The dead letter.';
COMMENT ON COLUMN makegood.dead_letters.source IS 'workflow (held on its way forward), compensation (held on its way back), message (from a broker).';
COMMENT ON COLUMN makegood.dead_letters.broker IS 'Where a message came from.';
COMMENT ON COLUMN makegood.dead_letters.message_id IS 'The workflow''s id, or the broker''s name of the message.';
COMMENT ON COLUMN makegood.dead_letters.message_key IS 'The workflow''s type, or the key of the message.';
COMMENT ON COLUMN makegood.dead_letters.workflow_id IS 'The workflow that is held.';
COMMENT ON COLUMN makegood.dead_letters.entity_id IS 'What it is about, for example order-123.';
COMMENT ON COLUMN makegood.dead_letters.payload IS 'The whole story at the time it failed, as JSON, or the message''s bytes.';
COMMENT ON COLUMN makegood.dead_letters.headers IS 'Facts to filter by: type, state, step, amount, currency.';
COMMENT ON COLUMN makegood.dead_letters.error_type IS 'One word for what went wrong.';
COMMENT ON COLUMN makegood.dead_letters.error IS 'The reason, for a person.';
COMMENT ON COLUMN makegood.dead_letters.signature IS 'The same for all that failed in the same way.';
COMMENT ON COLUMN makegood.dead_letters.attempts IS 'Attempts spent when it was last parked.';
COMMENT ON COLUMN makegood.dead_letters.redrives IS 'How often a person let it try again.';
COMMENT ON COLUMN makegood.dead_letters.state IS 'parked, redriving (let go, not ended yet), resolved (it ended), discarded.';
COMMENT ON COLUMN makegood.dead_letters.first_failed_at IS 'When it was first parked.';
COMMENT ON COLUMN makegood.dead_letters.last_failed_at IS 'When it was last parked.';
COMMENT ON COLUMN makegood.dead_letters.note IS 'What the last person said about it.';

COMMENT ON TABLE makegood.breakers IS 'One row per provider that was ever down: while open, nobody calls it but one probe at a time.';
COMMENT ON COLUMN makegood.breakers.provider IS 'The provider, as actions name it.';
COMMENT ON COLUMN makegood.breakers.state IS 'closed (calls go), open (nobody calls before retry_at), half_open (one probe is under way).';
COMMENT ON COLUMN makegood.breakers.opened_at IS 'Down since, without a success in between.';
COMMENT ON COLUMN makegood.breakers.retry_at IS 'The next probe may go at this time.';
COMMENT ON COLUMN makegood.breakers.failed_probes IS 'Probes that failed since it opened; each makes the next wait longer.';
COMMENT ON COLUMN makegood.breakers.probe_by IS 'The worker whose call is the probe.';
COMMENT ON COLUMN makegood.breakers.probe_until IS 'A probe that said nothing by then was lost; another may go.';
COMMENT ON COLUMN makegood.breakers.error IS 'The last error seen.';
COMMENT ON COLUMN makegood.breakers.updated_at IS 'When this row last changed.';

COMMENT ON TABLE makegood.job_runs IS 'One row per run of a scheduled job, with its counts.';
COMMENT ON COLUMN makegood.job_runs.id IS 'The run.';
COMMENT ON COLUMN makegood.job_runs.job IS 'The job; in Airflow the DAG of the same name.';
COMMENT ON COLUMN makegood.job_runs.run_key IS 'The same for the same run, so that a repeated begin finds it.';
COMMENT ON COLUMN makegood.job_runs.triggered_by IS 'A schedule, or who started it.';
COMMENT ON COLUMN makegood.job_runs.parameters IS 'What it was asked to do.';
COMMENT ON COLUMN makegood.job_runs.state IS 'running, done, failed, abandoned (it never said its end).';
COMMENT ON COLUMN makegood.job_runs.counts IS 'How many ended how.';
COMMENT ON COLUMN makegood.job_runs.parts IS 'The same per batch; a batch told twice counts once.';
COMMENT ON COLUMN makegood.job_runs.error IS 'Why it failed.';
COMMENT ON COLUMN makegood.job_runs.started_at IS 'When it began.';
COMMENT ON COLUMN makegood.job_runs.expires_at IS 'Without an end by then it counts as abandoned.';
COMMENT ON COLUMN makegood.job_runs.finished_at IS 'When it ended.';

COMMENT ON TABLE makegood.job_decisions IS 'What a job decided about a workflow it took, and why.';
COMMENT ON COLUMN makegood.job_decisions.id IS 'In the order of writing.';
COMMENT ON COLUMN makegood.job_decisions.run_id IS 'The run.';
COMMENT ON COLUMN makegood.job_decisions.workflow_id IS 'The workflow.';
COMMENT ON COLUMN makegood.job_decisions.entity_id IS 'What it is about.';
COMMENT ON COLUMN makegood.job_decisions.state IS 'Where it was.';
COMMENT ON COLUMN makegood.job_decisions.decision IS 'resume, wait, compensate or park.';
COMMENT ON COLUMN makegood.job_decisions.reason IS 'Why, for a person.';
COMMENT ON COLUMN makegood.job_decisions.decided_at IS 'When, by the database''s clock.';
