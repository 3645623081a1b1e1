-- Metric 2 on the overview: the share of attempts per step that did not succeed (see ../step_failure_rate.sql).
-- Attempts do not say their type, so only a chosen type costs the look at their workflows.
SELECT a.step, a.kind, count(*) AS attempts,
       count(*) FILTER (WHERE a.outcome = 'failed') AS failed,
       count(*) FILTER (WHERE a.outcome = 'unknown') AS unknown,
       round(1.0 * count(*) FILTER (WHERE a.outcome IN ('failed', 'unknown')) / count(*), 4)::float8 AS failure_rate
  FROM makegood.step_attempts a
 WHERE a.started_at > now() - make_interval(secs => %(period_seconds)s) AND a.outcome IS NOT NULL
   AND (%(workflow_type)s::text IS NULL OR EXISTS (
         SELECT FROM makegood.workflow_executions e
          WHERE e.id = a.workflow_id AND e.workflow_type = %(workflow_type)s))
 GROUP BY a.step, a.kind
 ORDER BY failure_rate DESC, a.step
 LIMIT 100;
