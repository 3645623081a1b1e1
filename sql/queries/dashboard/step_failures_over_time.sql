-- The trend of metric 2: attempts and failures of each step in each slice of the period.
SELECT date_bin(make_interval(secs => %(slice_seconds)s), a.started_at, '2000-01-01Z') AS slice, a.step, a.kind,
       count(*) AS attempts, count(*) FILTER (WHERE a.outcome IN ('failed', 'unknown')) AS failures
  FROM makegood.step_attempts a
 WHERE a.started_at > now() - make_interval(secs => %(period_seconds)s) AND a.outcome IS NOT NULL
   AND (%(workflow_type)s::text IS NULL OR EXISTS (
         SELECT FROM makegood.workflow_executions e
          WHERE e.id = a.workflow_id AND e.workflow_type = %(workflow_type)s))
 GROUP BY slice, a.step, a.kind
 LIMIT 10000;
