-- Metrics 1 and 4 and their trend: how many ended how in each slice of the period, and how long they took
-- (see ../duration.sql and ../compensation_rate.sql).
SELECT slice, state, ended, cells, counts
  FROM makegood.metric_ends(%(period_seconds)s, %(slice_seconds)s, %(workflow_type)s)
 LIMIT 1000;
