-- Metric 1 on the overview: how long workflows took that ended within the period, per end (see ../duration.sql).
SELECT current_state, count(*) AS workflows,
       extract(epoch FROM percentile_cont(0.50) WITHIN GROUP (ORDER BY finished_at - created_at))::float8 AS p50_seconds,
       extract(epoch FROM percentile_cont(0.95) WITHIN GROUP (ORDER BY finished_at - created_at))::float8 AS p95_seconds,
       extract(epoch FROM percentile_cont(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))::float8 AS p99_seconds
  FROM makegood.workflow_executions
 WHERE finished_at > now() - make_interval(secs => %(period_seconds)s)
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY current_state;
