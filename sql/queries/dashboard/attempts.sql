-- Metric 2 and its trend: what became of the attempts of each step in each slice of the period (see ../step_failure_rate.sql).
SELECT slice, step, kind, attempts, failed, unknown
  FROM makegood.metric_attempts(%(period_seconds)s, %(slice_seconds)s, %(workflow_type)s)
 LIMIT 10000;
