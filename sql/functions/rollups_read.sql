-- What the overview asks: counts of the period and, in the same snapshot, what is not counted yet.

-- Metrics 1 and 4: how many ended how in each slice of the period, and how long they took, as cells with their counts.
CREATE OR REPLACE FUNCTION makegood.metric_ends(
  p_period_seconds integer, p_slice_seconds integer, p_workflow_type text DEFAULT NULL)
RETURNS TABLE (slice timestamptz, state text, ended bigint, cells smallint[], counts bigint[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH period AS MATERIALIZED (SELECT * FROM makegood.rollup_period(p_period_seconds)),
  counted AS (
    SELECT r.began_at AS at, r.state, r.cells, r.counts
      FROM period p JOIN makegood.rollup_ends r ON r.unit = p.unit AND r.began_at >= p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL
    SELECT r.began_at, r.state, r.cells, r.counts
      FROM period p JOIN makegood.rollup_ends r ON r.unit = p.edge AND r.began_at >= p.since AND r.began_at < p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL
    SELECT e.finished_at, e.current_state, ARRAY[makegood.duration_cell(e.finished_at - e.created_at)], ARRAY[1::bigint]
      FROM period p, makegood.rollup_tail() AS t JOIN makegood.workflow_executions e ON e.id = t.workflow_id
     WHERE e.finished_at >= p.since AND (p_workflow_type IS NULL OR e.workflow_type = p_workflow_type)
  ), summed AS (
    SELECT date_bin(make_interval(secs => p_slice_seconds), c.at, '2000-01-01Z') AS slice, c.state, n.cell,
           sum(n.count)::bigint AS n
      FROM counted c CROSS JOIN LATERAL unnest(c.cells, c.counts) AS n(cell, count)
     GROUP BY 1, 2, 3
  )
  SELECT s.slice, s.state, sum(s.n)::bigint, array_agg(s.cell), array_agg(s.n) FROM summed s GROUP BY 1, 2
$$;
COMMENT ON FUNCTION makegood.metric_ends(integer, integer, text) IS
  'How many workflows ended how in each slice of the period up to now, and how long they took, in cells of duration_cell().';

-- Metric 2: what became of the attempts of each step in each slice. Counted ones are those of ended workflows; those
-- of all others, and late answers, are read from the rows.
CREATE OR REPLACE FUNCTION makegood.metric_attempts(
  p_period_seconds integer, p_slice_seconds integer, p_workflow_type text DEFAULT NULL)
RETURNS TABLE (slice timestamptz, step text, kind text, attempts bigint, failed bigint, unknown bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH period AS MATERIALIZED (SELECT * FROM makegood.rollup_period(p_period_seconds)),
  others AS (
    SELECT e.id FROM makegood.workflow_executions e
     WHERE e.current_state NOT IN ('completed', 'failed', 'compensated')
       AND (p_workflow_type IS NULL OR e.workflow_type = p_workflow_type)
    UNION ALL
    SELECT e.id FROM makegood.rollup_tail() AS t JOIN makegood.workflow_executions e ON e.id = t.workflow_id
     WHERE p_workflow_type IS NULL OR e.workflow_type = p_workflow_type
  ), counted AS (
    SELECT r.began_at AS at, r.step, r.kind, r.attempts, r.failed, r.unknown
      FROM period p JOIN makegood.rollup_attempts r ON r.unit = p.unit AND r.began_at >= p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL
    SELECT r.began_at, r.step, r.kind, r.attempts, r.failed, r.unknown
      FROM period p
      JOIN makegood.rollup_attempts r ON r.unit = p.edge AND r.began_at >= p.since AND r.began_at < p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL
    SELECT a.started_at, a.step, a.kind, 1, (a.outcome = 'failed')::integer, (a.outcome = 'unknown')::integer
      FROM period p, others o JOIN makegood.step_attempts a ON a.workflow_id = o.id
     WHERE a.started_at >= p.since AND a.outcome IS NOT NULL
    UNION ALL
    SELECT a.started_at, a.step, a.kind, 1, (a.outcome = 'failed')::integer, (a.outcome = 'unknown')::integer
      FROM period p, makegood.rollup_open_attempts o
      JOIN makegood.step_attempts a ON a.workflow_id = o.workflow_id AND a.kind = o.kind AND a.step = o.step
                                   AND a.attempt = o.attempt
     WHERE a.started_at >= p.since AND a.outcome IS NOT NULL
       AND (p_workflow_type IS NULL OR o.workflow_type = p_workflow_type)
  )
  SELECT date_bin(make_interval(secs => p_slice_seconds), c.at, '2000-01-01Z'), c.step, c.kind, sum(c.attempts)::bigint,
         sum(c.failed)::bigint, sum(c.unknown)::bigint
    FROM counted c
   GROUP BY 1, 2, 3
$$;
COMMENT ON FUNCTION makegood.metric_attempts(integer, integer, text) IS
  'What became of the attempts of each step in each slice of the period up to now.';

-- The trend of metric 3: how many had made no progress for five minutes when each slice began; the first one begins
-- with the period. Who moved later, less who became stuck later, is who was stuck then.
CREATE OR REPLACE FUNCTION makegood.metric_stuck(
  p_period_seconds integer, p_slice_seconds integer, p_workflow_type text DEFAULT NULL)
RETURNS TABLE (slice timestamptz, stuck bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH period AS MATERIALIZED (SELECT * FROM makegood.rollup_period(p_period_seconds)),
  others AS (
    SELECT e.id FROM makegood.workflow_executions e
     WHERE e.current_state NOT IN ('completed', 'failed', 'compensated')
       AND (p_workflow_type IS NULL OR e.workflow_type = p_workflow_type)
    UNION ALL
    SELECT e.id FROM makegood.rollup_tail() AS t JOIN makegood.workflow_executions e ON e.id = t.workflow_id
     WHERE p_workflow_type IS NULL OR e.workflow_type = p_workflow_type
  ), spans AS (
    SELECT t.transitioned_at + interval '5 minutes' AS became_at, coalesce(n.transitioned_at, 'infinity') AS moved_at
      FROM period p, others o
      JOIN makegood.workflow_transitions t ON t.workflow_id = o.id
      LEFT JOIN makegood.workflow_transitions n ON n.workflow_id = t.workflow_id AND n.seq = t.seq + 1
     WHERE t.to_state NOT IN ('completed', 'failed', 'compensated')
       AND coalesce(n.transitioned_at, 'infinity') > greatest(p.since, t.transitioned_at + interval '5 minutes')
       AND t.transitioned_at + interval '5 minutes' < now()
  ), edges AS (
    SELECT r.began_at AS at, r.moved - r.became AS later
      FROM period p JOIN makegood.rollup_stuck r ON r.unit = p.unit AND r.began_at >= p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL
    SELECT r.began_at, r.moved - r.became
      FROM period p JOIN makegood.rollup_stuck r ON r.unit = p.edge AND r.began_at >= p.since AND r.began_at < p.whole_from
     WHERE p_workflow_type IS NULL OR r.workflow_type = p_workflow_type
    UNION ALL SELECT s.became_at, -1 FROM period p, spans s WHERE s.became_at >= p.since
    UNION ALL SELECT s.moved_at, 1 FROM spans s
  ), slices AS (
    SELECT k.slice FROM period p, generate_series(
             date_bin(make_interval(secs => p_slice_seconds), p.since, '2000-01-01Z'), now(),
             make_interval(secs => p_slice_seconds)) AS k(slice)
  ), summed AS (
    SELECT date_bin(make_interval(secs => p_slice_seconds), least(g.at, now() + make_interval(secs => 2 * p_slice_seconds)),
                    '2000-01-01Z') AS slice, sum(g.later)::bigint AS later
      FROM edges g GROUP BY 1
  )
  SELECT k.slice, (SELECT coalesce(sum(s.later), 0)::bigint FROM summed s WHERE s.slice >= k.slice) FROM slices k
$$;
COMMENT ON FUNCTION makegood.metric_stuck(integer, integer, text) IS
  'How many workflows had made no progress for five minutes at the beginning of each slice of the period up to now.';
