-- The overview's numbers as counts per minute, hour and day, exact whatever order transactions commit in.
--
-- A workflow is counted once, when it has ended and all transactions up to its own are over: its end, its attempts and
-- the times it was stuck. What has not been counted yet is read from the rows themselves, in the same snapshot as the
-- counts and their position, so the numbers are live and nothing is ever in both or in neither.
--
-- Joins are forced through indexes, as in move.sql: no planner knows how little has not been counted yet.

-- Durations in cells, each 4 % wider than the one before, from a millisecond on; 0 is anything shorter. Whatever lies
-- in a cell is at most 1.98 % (the root of 1.04) away from its middle.
CREATE OR REPLACE FUNCTION makegood.duration_cell(p_duration interval) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_duration < interval '1 millisecond' THEN 0::smallint
              ELSE (1 + pg_catalog.floor(pg_catalog.ln(1000 * extract(epoch FROM p_duration)::double precision)
                                         / 0.03922071315328133))::smallint END
$$;
COMMENT ON FUNCTION makegood.duration_cell(interval) IS
  'The number of the cell a duration falls into: cell k is 1.04^(k-1) to 1.04^k milliseconds.';

-- Where a period begins, and which counts make it up: whole units from whole_from on, smaller ones before that.
-- Up to a day it begins at a full minute, beyond that at a full hour.
CREATE OR REPLACE FUNCTION makegood.rollup_period(p_period_seconds integer)
RETURNS TABLE (since timestamptz, unit text, whole_from timestamptz, edge text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT s.since, u.unit, date_bin(u.width, s.since + u.width - interval '1 microsecond', '2000-01-01Z'), e.edge
    FROM (SELECT CASE WHEN p_period_seconds <= 21600 THEN 'minute' WHEN p_period_seconds <= 604800 THEN 'hour'
                      ELSE 'day' END AS unit,
                 CASE WHEN p_period_seconds <= 21600 THEN interval '1 minute'
                      WHEN p_period_seconds <= 604800 THEN interval '1 hour' ELSE interval '1 day' END AS width) AS u,
         (SELECT CASE WHEN p_period_seconds <= 86400 THEN 'minute' ELSE 'hour' END AS edge) AS e,
         LATERAL (SELECT date_bin(('1 ' || e.edge)::interval, now() - make_interval(secs => p_period_seconds),
                                  '2000-01-01Z') AS since) AS s
$$;
COMMENT ON FUNCTION makegood.rollup_period(integer) IS
  'Where a period of so many seconds up to now begins, and which counts make it up.';

-- Workflows whose end is not counted yet.
CREATE OR REPLACE FUNCTION makegood.rollup_tail() RETURNS TABLE (workflow_id uuid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  SELECT t.workflow_id
    FROM makegood.rollup_position p
    JOIN makegood.workflow_transitions t ON (t.xact, t.id) > (p.xact, p.transition_id)
   WHERE t.to_state IN ('completed', 'failed', 'compensated')
$$;
COMMENT ON FUNCTION makegood.rollup_tail() IS 'Workflows that have ended and are not counted yet.';

-- Counts one batch of ends, in the caller's transaction: the counts and the position move together or not at all, so
-- it may be killed anywhere and repeated. Returns how many ends it counted; fewer than p_batch means that is all for
-- now, and null that somebody else is at it.
CREATE OR REPLACE FUNCTION makegood.roll_up(p_batch integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  v_from makegood.rollup_position;
  v_caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
  v_final_below xid8;
  v_ids uuid[];
  v_xact xid8;
  v_transition_id bigint;
BEGIN
  -- Spares the second of two a wait; the row's lock is what keeps them apart.
  IF NOT pg_try_advisory_xact_lock(hashtextextended('makegood.roll_up', 0)) THEN
    RETURN NULL;
  END IF;
  SELECT * INTO v_from FROM makegood.rollup_position FOR UPDATE;
  IF v_from.server <> (SELECT c.system_identifier FROM pg_control_system() AS c) THEN
    IF NOT pg_has_role(v_caller, 'makegood_jobs', 'MEMBER') THEN
      RETURN NULL;  -- it locks the table of transitions: a job may, a look at a page may not
    END IF;
    PERFORM makegood.restart_rollups();
    SELECT * INTO v_from FROM makegood.rollup_position;
  END IF;

  -- In this order: what is final by now is visible to every later statement.
  v_final_below := pg_snapshot_xmin(pg_current_snapshot());
  SELECT array_agg(b.workflow_id), (array_agg(b.xact ORDER BY b.xact DESC, b.id DESC))[1],
         (array_agg(b.id ORDER BY b.xact DESC, b.id DESC))[1]
    INTO v_ids, v_xact, v_transition_id
    FROM (SELECT t.workflow_id, t.xact, t.id FROM makegood.workflow_transitions t
           WHERE t.to_state IN ('completed', 'failed', 'compensated')
             AND (t.xact, t.id) > (v_from.xact, v_from.transition_id) AND t.xact < v_final_below
           ORDER BY t.xact, t.id LIMIT p_batch) AS b;
  -- Once a round, with its last batch: what a killed worker left open is looked at one by one, and meanwhile read live.
  IF v_ids IS NULL OR cardinality(v_ids) < p_batch THEN
    PERFORM makegood.count_late_answers();
  END IF;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM makegood.count_attempts(v_ids);
  PERFORM makegood.count_ends(v_ids);
  PERFORM makegood.count_stuck_spans(v_ids);
  UPDATE makegood.rollup_position
     SET xact = v_xact, transition_id = v_transition_id, rolled_at = clock_timestamp();
  RETURN cardinality(v_ids);
END
$$;
COMMENT ON FUNCTION makegood.roll_up(integer) IS
  'Counts the next ends whose transactions are over, at most so many; returns how many, null when another is at it.';

-- The parts of a batch. They rely on the lock of rollup_position, which only roll_up takes. Each counts per
-- minute first: what is in an hour or a day is the sum of its minutes, which are few.
CREATE OR REPLACE FUNCTION makegood.count_ends(p_ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  WITH minutes AS MATERIALIZED (
    SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z') AS began_at, e.workflow_type, e.current_state AS state,
           makegood.duration_cell(e.finished_at - e.created_at) AS cell, count(*) AS n
      FROM makegood.workflow_executions e
     WHERE e.id = ANY (p_ids)
     GROUP BY 1, 2, 3, 4
  ), fresh AS MATERIALIZED (
    SELECT u.unit, date_bin(('1 ' || u.unit)::interval, m.began_at, '2000-01-01Z') AS began_at, m.workflow_type,
           m.state, m.cell, sum(m.n)::bigint AS n
      FROM minutes m CROSS JOIN (VALUES ('minute'), ('hour'), ('day')) AS u(unit)
     GROUP BY 1, 2, 3, 4, 5
  ), together AS (
    SELECT f.unit, f.began_at, f.workflow_type, f.state, f.cell, f.n FROM fresh f
    UNION ALL
    SELECT r.unit, r.began_at, r.workflow_type, r.state, c.cell, c.n
      FROM makegood.rollup_ends r CROSS JOIN LATERAL unnest(r.cells, r.counts) AS c(cell, n)
     WHERE (r.unit, r.began_at, r.workflow_type, r.state)
           IN (SELECT f.unit, f.began_at, f.workflow_type, f.state FROM fresh f)
  ), summed AS (
    SELECT t.unit, t.began_at, t.workflow_type, t.state, t.cell, sum(t.n)::bigint AS n FROM together t GROUP BY 1, 2, 3, 4, 5
  )
  INSERT INTO makegood.rollup_ends AS r (unit, began_at, workflow_type, state, ended, cells, counts)
  SELECT s.unit, s.began_at, s.workflow_type, s.state, sum(s.n), array_agg(s.cell ORDER BY s.cell),
         array_agg(s.n ORDER BY s.cell)
    FROM summed s GROUP BY 1, 2, 3, 4
  ON CONFLICT (unit, began_at, workflow_type, state) DO UPDATE
     SET ended = excluded.ended, cells = excluded.cells, counts = excluded.counts
$$;
COMMENT ON FUNCTION makegood.count_ends(uuid[]) IS 'Part of roll_up: the ends of these workflows and how long they took.';

CREATE OR REPLACE FUNCTION makegood.count_attempts(p_ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  WITH own AS MATERIALIZED (
    SELECT e.workflow_type, a.workflow_id, a.kind, a.step, a.attempt, a.started_at, a.outcome
      FROM makegood.workflow_executions e JOIN makegood.step_attempts a ON a.workflow_id = e.id
     WHERE e.id = ANY (p_ids)
  ), open AS (
    INSERT INTO makegood.rollup_open_attempts (workflow_id, kind, step, attempt, workflow_type, started_at)
    SELECT o.workflow_id, o.kind, o.step, o.attempt, o.workflow_type, o.started_at FROM own o WHERE o.outcome IS NULL
  ), minutes AS MATERIALIZED (
    SELECT date_bin('1 minute', o.started_at, '2000-01-01Z') AS began_at, o.workflow_type, o.step, o.kind,
           count(*) AS attempts, count(*) FILTER (WHERE o.outcome = 'failed') AS failed,
           count(*) FILTER (WHERE o.outcome = 'unknown') AS unknown
      FROM own o
     WHERE o.outcome IS NOT NULL
     GROUP BY 1, 2, 3, 4
  )
  INSERT INTO makegood.rollup_attempts AS r (unit, began_at, workflow_type, step, kind, attempts, failed, unknown)
  SELECT u.unit, date_bin(('1 ' || u.unit)::interval, m.began_at, '2000-01-01Z'), m.workflow_type, m.step, m.kind,
         sum(m.attempts), sum(m.failed), sum(m.unknown)
    FROM minutes m CROSS JOIN (VALUES ('minute'), ('hour'), ('day')) AS u(unit)
   GROUP BY 1, 2, 3, 4, 5
  ON CONFLICT (unit, began_at, workflow_type, step, kind) DO UPDATE
     SET attempts = r.attempts + excluded.attempts, failed = r.failed + excluded.failed,
         unknown = r.unknown + excluded.unknown
$$;
COMMENT ON FUNCTION makegood.count_attempts(uuid[]) IS
  'Part of roll_up: the attempts of these workflows.';

CREATE OR REPLACE FUNCTION makegood.count_late_answers() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  WITH answered AS (
    DELETE FROM makegood.rollup_open_attempts o USING makegood.step_attempts a
     WHERE a.workflow_id = o.workflow_id AND a.kind = o.kind AND a.step = o.step AND a.attempt = o.attempt
       AND a.outcome IS NOT NULL
    RETURNING o.workflow_type, o.step, o.kind, o.started_at, a.outcome
  )
  INSERT INTO makegood.rollup_attempts AS r (unit, began_at, workflow_type, step, kind, attempts, failed, unknown)
  SELECT u.unit, date_bin(('1 ' || u.unit)::interval, f.started_at, '2000-01-01Z'), f.workflow_type, f.step, f.kind,
         count(*), count(*) FILTER (WHERE f.outcome = 'failed'), count(*) FILTER (WHERE f.outcome = 'unknown')
    FROM answered f CROSS JOIN (VALUES ('minute'), ('hour'), ('day')) AS u(unit)
   GROUP BY 1, 2, 3, 4, 5
  ON CONFLICT (unit, began_at, workflow_type, step, kind) DO UPDATE
     SET attempts = r.attempts + excluded.attempts, failed = r.failed + excluded.failed,
         unknown = r.unknown + excluded.unknown
$$;
COMMENT ON FUNCTION makegood.count_late_answers() IS
  'Part of roll_up: attempts of workflows counted earlier that were answered since.';

-- Stuck as published: five minutes without progress.
CREATE OR REPLACE FUNCTION makegood.count_stuck_spans(p_ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  WITH spans AS (
    SELECT s.workflow_id, s.began_at, s.ended_at
      FROM (SELECT t.workflow_id, t.transitioned_at AS ended_at,
                   lag(t.transitioned_at) OVER (PARTITION BY t.workflow_id ORDER BY t.seq) AS began_at
              FROM makegood.workflow_transitions t WHERE t.workflow_id = ANY (p_ids)) AS s
     WHERE s.ended_at > s.began_at + interval '5 minutes'
  ), edges AS (
    SELECT e.workflow_type, d.at, d.became, d.moved
      FROM spans s
      JOIN makegood.workflow_executions e ON e.id = s.workflow_id
      CROSS JOIN LATERAL (VALUES (s.began_at + interval '5 minutes', 1, 0), (s.ended_at, 0, 1)) AS d(at, became, moved)
  ), minutes AS MATERIALIZED (
    SELECT date_bin('1 minute', g.at, '2000-01-01Z') AS began_at, g.workflow_type, sum(g.became) AS became,
           sum(g.moved) AS moved
      FROM edges g
     GROUP BY 1, 2
  )
  INSERT INTO makegood.rollup_stuck AS r (unit, began_at, workflow_type, became, moved)
  SELECT u.unit, date_bin(('1 ' || u.unit)::interval, m.began_at, '2000-01-01Z'), m.workflow_type, sum(m.became),
         sum(m.moved)
    FROM minutes m CROSS JOIN (VALUES ('minute'), ('hour'), ('day')) AS u(unit)
   GROUP BY 1, 2, 3
  ON CONFLICT (unit, began_at, workflow_type) DO UPDATE
     SET became = r.became + excluded.became, moved = r.moved + excluded.moved
$$;
COMMENT ON FUNCTION makegood.count_stuck_spans(uuid[]) IS 'Part of roll_up: when these workflows became stuck and when they moved again.';

-- Transactions are numbered per server: on another one, restored from a dump, the stored numbers mean nothing, and
-- all that is there counts as written by 0 again. It takes a moment during which nobody writes.
CREATE OR REPLACE FUNCTION makegood.restart_rollups() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  ALTER TABLE makegood.workflow_transitions DROP COLUMN xact;
  ALTER TABLE makegood.workflow_transitions ADD COLUMN xact xid8 NOT NULL DEFAULT '0';
  ALTER TABLE makegood.workflow_transitions ALTER COLUMN xact SET DEFAULT pg_catalog.pg_current_xact_id();
  COMMENT ON COLUMN makegood.workflow_transitions.xact IS 'The transaction that wrote it; 0 for what is older than this column.';
  CREATE INDEX workflow_transitions_ends ON makegood.workflow_transitions (xact, id)
    WHERE to_state IN ('completed', 'failed', 'compensated');
  DELETE FROM makegood.rollup_ends;
  DELETE FROM makegood.rollup_attempts;
  DELETE FROM makegood.rollup_stuck;
  DELETE FROM makegood.rollup_open_attempts;
  UPDATE makegood.rollup_position
     SET xact = '0', transition_id = 0, rolled_at = clock_timestamp(),
         server = (SELECT c.system_identifier FROM pg_control_system() AS c);
END
$$;
COMMENT ON FUNCTION makegood.restart_rollups() IS 'Forgets all counts and has them counted anew, after a restore on another server.';

-- Counts nobody asks for any more: minutes older than two days, hours older than the longest period, and attempts that
-- no worker answers after so long. Days are kept.
CREATE OR REPLACE FUNCTION makegood.tidy_rollups(p_batch integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_minutes timestamptz := clock_timestamp() - interval '2 days';
  v_hours timestamptz := clock_timestamp() - interval '100 days';
  v_all integer := 0;
  v_some integer;
BEGIN
  DELETE FROM makegood.rollup_ends AS r USING (
    SELECT o.unit, o.began_at, o.workflow_type, o.state FROM makegood.rollup_ends o
     WHERE (o.unit = 'minute' AND o.began_at < v_minutes) OR (o.unit = 'hour' AND o.began_at < v_hours) LIMIT p_batch) AS o
   WHERE (r.unit, r.began_at, r.workflow_type, r.state) = (o.unit, o.began_at, o.workflow_type, o.state);
  GET DIAGNOSTICS v_some = ROW_COUNT;
  v_all := v_all + v_some;
  DELETE FROM makegood.rollup_attempts AS r USING (
    SELECT o.unit, o.began_at, o.workflow_type, o.step, o.kind FROM makegood.rollup_attempts o
     WHERE (o.unit = 'minute' AND o.began_at < v_minutes) OR (o.unit = 'hour' AND o.began_at < v_hours) LIMIT p_batch) AS o
   WHERE (r.unit, r.began_at, r.workflow_type, r.step, r.kind) = (o.unit, o.began_at, o.workflow_type, o.step, o.kind);
  GET DIAGNOSTICS v_some = ROW_COUNT;
  v_all := v_all + v_some;
  DELETE FROM makegood.rollup_stuck AS r USING (
    SELECT o.unit, o.began_at, o.workflow_type FROM makegood.rollup_stuck o
     WHERE (o.unit = 'minute' AND o.began_at < v_minutes) OR (o.unit = 'hour' AND o.began_at < v_hours) LIMIT p_batch) AS o
   WHERE (r.unit, r.began_at, r.workflow_type) = (o.unit, o.began_at, o.workflow_type);
  GET DIAGNOSTICS v_some = ROW_COUNT;
  v_all := v_all + v_some;
  DELETE FROM makegood.rollup_open_attempts AS r WHERE r.started_at < v_hours;
  GET DIAGNOSTICS v_some = ROW_COUNT;
  RETURN v_all + v_some;
END
$$;
COMMENT ON FUNCTION makegood.tidy_rollups(integer) IS
  'Forgets minutes after two days and hours after a hundred, at most so many each; returns how many counts went.';
