-- The trend of metrics 1 and 4: how many ended how in each slice of the period, and how long the completed ones took.
SELECT date_bin(make_interval(secs => %(slice_seconds)s), finished_at, '2000-01-01Z') AS slice,
       count(*) FILTER (WHERE current_state = 'completed') AS completed,
       count(*) FILTER (WHERE current_state = 'compensated') AS compensated,
       count(*) FILTER (WHERE current_state = 'failed') AS failed,
       extract(epoch FROM percentile_cont(0.95) WITHIN GROUP (ORDER BY finished_at - created_at)
         FILTER (WHERE current_state = 'completed'))::float8 AS p95_seconds
  FROM makegood.workflow_executions
 WHERE finished_at > now() - make_interval(secs => %(period_seconds)s)
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY slice;
