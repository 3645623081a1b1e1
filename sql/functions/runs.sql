-- Runs of scheduled jobs and what they decided. A run is one row however often its begin, a part or its end is
-- repeated; one that dies is called abandoned by the next.

CREATE OR REPLACE FUNCTION makegood.sum_parts(p_parts jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(jsonb_object_agg(s.name, s.n), '{}') FROM (
    SELECT c.key AS name, sum(c.value::text::bigint) AS n
      FROM jsonb_each(p_parts) AS p, jsonb_each(p.value) AS c GROUP BY c.key) AS s
$$;
COMMENT ON FUNCTION makegood.sum_parts(jsonb) IS 'The counts of a run: the sum of its parts.';

CREATE OR REPLACE FUNCTION makegood.begin_run(
  p_job text, p_run_key text, p_triggered_by text, p_parameters jsonb, p_seconds_max double precision)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_id uuid;
BEGIN
  UPDATE makegood.job_runs AS r SET state = 'abandoned', finished_at = t, counts = makegood.sum_parts(r.parts)
   WHERE r.state = 'running' AND r.expires_at <= t;
  INSERT INTO makegood.job_runs (id, job, run_key, triggered_by, parameters, started_at, expires_at)
  VALUES (makegood.new_id(), p_job, p_run_key, p_triggered_by, p_parameters, t, t + make_interval(secs => p_seconds_max))
  ON CONFLICT (job, run_key) DO NOTHING;
  SELECT r.id INTO v_id FROM makegood.job_runs r WHERE r.job = p_job AND r.run_key = p_run_key;
  RETURN v_id;
END
$$;
COMMENT ON FUNCTION makegood.begin_run(text, text, text, jsonb, double precision) IS
  'Opens a run of a job and returns its id; the same key again returns the same run.';

-- One part's counts, as they are now. The same part again replaces what it said before.
CREATE OR REPLACE FUNCTION makegood.count_part(p_run_id uuid, p_part text, p_counts jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.job_runs SET parts = parts || jsonb_build_object(p_part, p_counts) WHERE id = p_run_id
$$;
COMMENT ON FUNCTION makegood.count_part(uuid, text, jsonb) IS 'Records what one part of a run has done so far.';

-- The batches that a run is to come to. Told again, by a begin that is repeated, it is the new plan that counts.
CREATE OR REPLACE FUNCTION makegood.expect_batches(p_run_id uuid, p_batches text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.job_runs
     SET batches = (SELECT coalesce(jsonb_object_agg(b.name, 'expected'), '{}') FROM unnest(p_batches) AS b(name))
   WHERE id = p_run_id
$$;
COMMENT ON FUNCTION makegood.expect_batches(uuid, text[]) IS 'Names the batches that a run is to come to.';

-- How far one batch has come: running, done or failed. A batch that is tried again runs again, whatever it was.
CREATE OR REPLACE FUNCTION makegood.mark_batch(p_run_id uuid, p_batch text, p_state text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.job_runs SET batches = batches || jsonb_build_object(p_batch, p_state) WHERE id = p_run_id
$$;
COMMENT ON FUNCTION makegood.mark_batch(uuid, text, text) IS 'Records how far one batch of a run has come.';

-- The end of a run: its counts are the sum of its parts. Told twice, it is the same end, and a failure stays one, but
-- for a batch that was tried again since; a run that was called abandoned and ends after all has ended.
CREATE OR REPLACE FUNCTION makegood.finish_run(p_run_id uuid, p_error text DEFAULT NULL) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.job_runs AS r
     SET state = CASE WHEN coalesce(p_error, s.kept, s.error) IS NULL THEN 'done' ELSE 'failed' END,
         error = left(coalesce(p_error, s.kept, s.error), 2000),
         counts = s.counts,
         finished_at = CASE WHEN r.state IN ('running', 'abandoned') THEN clock_timestamp() ELSE r.finished_at END
    FROM (SELECT b.kept, c.counts || CASE WHEN n.bad > 0 THEN jsonb_build_object('batches_failed', n.bad) ELSE '{}' END AS counts,
                 nullif(concat_ws(', ', (nullif(n.bad - b.open, 0)) || ' batches failed',
                   (nullif(b.open, 0)) || ' batches did not come to their end'), '') AS error
            FROM makegood.job_runs q
            CROSS JOIN LATERAL (SELECT makegood.sum_parts(q.parts) AS counts) AS c
            CROSS JOIN LATERAL (
              SELECT count(*) FILTER (WHERE e.value = 'failed') AS failed,
                     count(*) FILTER (WHERE e.value IN ('expected', 'running')) AS open,
                     -- How its batches ended is looked at anew; what else was wrong stays.
                     CASE WHEN q.batches = '{}' THEN q.error END AS kept
                FROM jsonb_each_text(q.batches) AS e) AS b
            CROSS JOIN LATERAL (
              SELECT b.failed + b.open + coalesce((c.counts->>'batches_failed')::bigint, 0) AS bad) AS n
           WHERE q.id = p_run_id) AS s
   WHERE r.id = p_run_id
  RETURNING r.counts
$$;
COMMENT ON FUNCTION makegood.finish_run(uuid, text) IS 'Ends a run and returns its counts.';

-- What a run decided about workflows it holds, and why.
CREATE OR REPLACE FUNCTION makegood.record_decisions(p_run_id uuid, p_items jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO makegood.job_decisions (run_id, workflow_id, entity_id, state, decision, reason, decided_at)
  SELECT p_run_id, i.id, i.entity_id, i.state, i.decision, left(i.reason, 2000), clock_timestamp()
    FROM jsonb_to_recordset(p_items) AS i(id uuid, entity_id text, state text, decision text, reason text)
$$;
COMMENT ON FUNCTION makegood.record_decisions(uuid, jsonb) IS
  'Writes down what a run decided: items {id, entity_id, state, decision, reason}.';

-- What is past its deadline and what is to be undone, per type and state: how many may be taken now, how many wait
-- for their time, how many a worker has. Reads only what is unfinished.
--   p_older_than_seconds  instead of the step's deadline: without progress for at least so long
CREATE OR REPLACE FUNCTION makegood.count_stuck(
  p_older_than_seconds double precision DEFAULT NULL, p_types text[] DEFAULT NULL)
RETURNS TABLE (workflow_type text, current_state text, due bigint, waiting bigint, leased bigint, oldest_seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.workflow_type, e.current_state,
         count(*) FILTER (WHERE e.next_attempt_at <= n.t AND (e.lease_until IS NULL OR e.lease_until <= n.t)),
         count(*) FILTER (WHERE e.next_attempt_at > n.t AND (e.lease_until IS NULL OR e.lease_until <= n.t)),
         count(*) FILTER (WHERE e.lease_until > n.t),
         extract(epoch FROM n.t - min(e.updated_at))::double precision
    FROM (SELECT clock_timestamp() AS t) AS n
    JOIN makegood.workflow_executions e ON e.finished_at IS NULL AND e.held_at IS NULL
   WHERE (p_types IS NULL OR e.workflow_type = ANY (p_types))
     AND CASE WHEN p_older_than_seconds IS NOT NULL THEN e.updated_at <= n.t - make_interval(secs => p_older_than_seconds)
              ELSE e.deadline_at <= n.t OR e.current_state = 'compensating' END
   GROUP BY e.workflow_type, e.current_state, n.t
$$;
COMMENT ON FUNCTION makegood.count_stuck(double precision, text[]) IS
  'What is past its deadline or to be undone, per type and state: due, waiting and leased.';

-- Housekeeping, bounded: what was let go and has ended is resolved; runs, decisions and delivered messages past their
-- time go. A message that nobody has delivered stays.
CREATE OR REPLACE FUNCTION makegood.tidy(p_keep_days integer, p_batch integer DEFAULT 10000)
RETURNS TABLE (resolved bigint, keys bigint, runs bigint, decisions bigint, messages bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - make_interval(days => p_keep_days);
BEGIN
  UPDATE makegood.dead_letters AS d SET state = 'resolved' WHERE d.state = 'redriving' AND d.id IN (
    SELECT o.id FROM makegood.dead_letters o JOIN makegood.workflow_executions e ON e.id = o.workflow_id
     WHERE o.state = 'redriving' AND e.finished_at IS NOT NULL LIMIT p_batch);
  GET DIAGNOSTICS resolved = ROW_COUNT;
  keys := makegood.forget_keys(p_batch);
  DELETE FROM makegood.job_runs AS r WHERE r.id IN (
    SELECT o.id FROM makegood.job_runs o WHERE o.started_at < v_before AND o.state <> 'running' LIMIT p_batch);
  GET DIAGNOSTICS runs = ROW_COUNT;
  DELETE FROM makegood.job_decisions AS j WHERE j.id IN (
    SELECT o.id FROM makegood.job_decisions o WHERE o.decided_at < v_before LIMIT p_batch);
  GET DIAGNOSTICS decisions = ROW_COUNT;
  DELETE FROM makegood.outbox AS m WHERE m.id IN (
    SELECT o.id FROM makegood.outbox o WHERE o.published_at < v_before LIMIT p_batch);
  GET DIAGNOSTICS messages = ROW_COUNT;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION makegood.tidy(integer, integer) IS
  'Resolves dead letters whose workflow has ended, and forgets keys, runs, decisions and delivered messages past their time, at most so many each.';
