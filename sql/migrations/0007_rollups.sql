-- The overview's numbers kept as counts per time, so that they cost the same however much has ended.

-- Which transaction wrote a transition. Numbers are given before a commit and times are taken before it, so neither
-- says what a reader has not seen yet; this does: all that is below the oldest transaction still under way is final.
-- What was written before this revision counts as written by 0, without being rewritten.
ALTER TABLE makegood.workflow_transitions ADD COLUMN xact xid8 NOT NULL DEFAULT '0';
ALTER TABLE makegood.workflow_transitions ALTER COLUMN xact SET DEFAULT pg_catalog.pg_current_xact_id();

-- The ends, in the order in which they become final. One entry per workflow in its whole life, never changed.
CREATE INDEX workflow_transitions_ends ON makegood.workflow_transitions (xact, id)
  WHERE to_state IN ('completed', 'failed', 'compensated');

-- A part of an order's number: its beginning and its end, in any collation. One entry per workflow, never changed;
-- on workflow_executions each move of a workflow would write them again.
CREATE INDEX workflow_transitions_beginning ON makegood.workflow_transitions (entity_id text_pattern_ops) WHERE seq = 1;
CREATE INDEX workflow_transitions_ending ON makegood.workflow_transitions (pg_catalog.reverse(entity_id) text_pattern_ops)
  WHERE seq = 1;

CREATE TABLE makegood.rollup_position (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  xact xid8 NOT NULL,
  transition_id bigint NOT NULL,
  server bigint NOT NULL,
  rolled_at timestamptz NOT NULL
);
INSERT INTO makegood.rollup_position (xact, transition_id, server, rolled_at)
SELECT '0', 0, system_identifier, pg_catalog.clock_timestamp() FROM pg_catalog.pg_control_system();

CREATE TABLE makegood.rollup_ends (
  unit text NOT NULL CHECK (unit IN ('minute', 'hour', 'day')),
  began_at timestamptz NOT NULL,
  workflow_type text NOT NULL,
  state text NOT NULL,
  ended bigint NOT NULL CHECK (ended > 0),
  cells smallint[] NOT NULL,
  counts bigint[] NOT NULL CHECK (cardinality(counts) = cardinality(cells)),
  PRIMARY KEY (unit, began_at, workflow_type, state)
);

CREATE TABLE makegood.rollup_attempts (
  unit text NOT NULL CHECK (unit IN ('minute', 'hour', 'day')),
  began_at timestamptz NOT NULL,
  workflow_type text NOT NULL,
  step text NOT NULL,
  kind text NOT NULL,
  attempts bigint NOT NULL CHECK (attempts > 0),
  failed bigint NOT NULL CHECK (failed >= 0),
  unknown bigint NOT NULL CHECK (unknown >= 0),
  PRIMARY KEY (unit, began_at, workflow_type, step, kind)
);

CREATE TABLE makegood.rollup_stuck (
  unit text NOT NULL CHECK (unit IN ('minute', 'hour', 'day')),
  began_at timestamptz NOT NULL,
  workflow_type text NOT NULL,
  became bigint NOT NULL CHECK (became >= 0),
  moved bigint NOT NULL CHECK (moved >= 0),
  PRIMARY KEY (unit, began_at, workflow_type)
);

-- No foreign key: its check would lock rows of step_attempts that a late worker is about to write.
CREATE TABLE makegood.rollup_open_attempts (
  workflow_id uuid NOT NULL,
  kind text NOT NULL,
  step text NOT NULL,
  attempt integer NOT NULL,
  workflow_type text NOT NULL,
  started_at timestamptz NOT NULL,
  PRIMARY KEY (workflow_id, kind, step, attempt)
);

COMMENT ON COLUMN makegood.workflow_transitions.xact IS 'The transaction that wrote it; 0 for what is older than this column.';

COMMENT ON TABLE makegood.rollup_position IS 'Up to which end the counts go; moves in the transaction that counts.';
COMMENT ON COLUMN makegood.rollup_position.only_one IS 'There is one row.';
COMMENT ON COLUMN makegood.rollup_position.xact IS 'The transaction of the last end that is counted.';
COMMENT ON COLUMN makegood.rollup_position.transition_id IS 'Its transition.';
COMMENT ON COLUMN makegood.rollup_position.server IS 'The server whose transactions these are; on another one counting starts anew.';
COMMENT ON COLUMN makegood.rollup_position.rolled_at IS 'When it last moved.';

COMMENT ON TABLE makegood.rollup_ends IS 'How many workflows ended how in each minute, hour and day, and how long they took.';
COMMENT ON COLUMN makegood.rollup_ends.unit IS 'minute, hour or day (UTC); each end is in all three.';
COMMENT ON COLUMN makegood.rollup_ends.began_at IS 'When that minute, hour or day began.';
COMMENT ON COLUMN makegood.rollup_ends.workflow_type IS 'The type.';
COMMENT ON COLUMN makegood.rollup_ends.state IS 'The end: completed, failed or compensated.';
COMMENT ON COLUMN makegood.rollup_ends.ended IS 'How many.';
COMMENT ON COLUMN makegood.rollup_ends.cells IS 'Durations that occurred, as makegood.duration_cell() numbers them.';
COMMENT ON COLUMN makegood.rollup_ends.counts IS 'How many took so long, cell by cell.';

COMMENT ON TABLE makegood.rollup_attempts IS 'How many attempts of each step, begun in each minute, hour and day, came to what; of ended workflows.';
COMMENT ON COLUMN makegood.rollup_attempts.unit IS 'minute, hour or day (UTC); each attempt is in all three.';
COMMENT ON COLUMN makegood.rollup_attempts.began_at IS 'When that minute, hour or day began.';
COMMENT ON COLUMN makegood.rollup_attempts.workflow_type IS 'The type.';
COMMENT ON COLUMN makegood.rollup_attempts.step IS 'The step.';
COMMENT ON COLUMN makegood.rollup_attempts.kind IS 'forward or compensation.';
COMMENT ON COLUMN makegood.rollup_attempts.attempts IS 'How many have an outcome.';
COMMENT ON COLUMN makegood.rollup_attempts.failed IS 'How many failed.';
COMMENT ON COLUMN makegood.rollup_attempts.unknown IS 'How many had no clear answer.';

COMMENT ON TABLE makegood.rollup_stuck IS 'How many workflows became stuck in each minute, hour and day, and how many stuck ones moved; of ended workflows.';
COMMENT ON COLUMN makegood.rollup_stuck.unit IS 'minute, hour or day (UTC); each is in all three.';
COMMENT ON COLUMN makegood.rollup_stuck.began_at IS 'When that minute, hour or day began.';
COMMENT ON COLUMN makegood.rollup_stuck.workflow_type IS 'The type.';
COMMENT ON COLUMN makegood.rollup_stuck.became IS 'How many passed five minutes without progress.';
COMMENT ON COLUMN makegood.rollup_stuck.moved IS 'How many that had passed them moved again.';

COMMENT ON TABLE makegood.rollup_open_attempts IS 'Attempts of counted workflows that had no outcome yet: a late worker may still write it.';
COMMENT ON COLUMN makegood.rollup_open_attempts.workflow_id IS 'The workflow.';
COMMENT ON COLUMN makegood.rollup_open_attempts.kind IS 'forward or compensation.';
COMMENT ON COLUMN makegood.rollup_open_attempts.step IS 'The step.';
COMMENT ON COLUMN makegood.rollup_open_attempts.attempt IS 'Which one.';
COMMENT ON COLUMN makegood.rollup_open_attempts.workflow_type IS 'The type of the workflow.';
COMMENT ON COLUMN makegood.rollup_open_attempts.started_at IS 'When it began.';
