-- The trend of metric 3: how many had made no progress for five minutes when each slice of the period began.
SELECT slice, stuck FROM makegood.metric_stuck(%(period_seconds)s, %(slice_seconds)s, %(workflow_type)s)
 ORDER BY slice LIMIT 1000;
