-- Metric 3 on the overview: what makes no progress now, with its money, its oldest and its ages (see ../stuck_count.sql).
SELECT currency, count(*) AS stuck, count(held_at) AS held, sum(amount_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(updated_at))::float8 AS oldest_seconds,
       count(*) FILTER (WHERE updated_at >= now() - interval '15 minutes') AS under_15_minutes,
       count(*) FILTER (WHERE updated_at < now() - interval '15 minutes'
                          AND updated_at >= now() - interval '1 hour') AS under_1_hour,
       count(*) FILTER (WHERE updated_at < now() - interval '1 hour'
                          AND updated_at >= now() - interval '1 day') AS under_1_day,
       count(*) FILTER (WHERE updated_at < now() - interval '1 day') AS over_1_day
  FROM makegood.workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated')
   AND updated_at < now() - interval '5 minutes'
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY currency
 ORDER BY amount_minor DESC NULLS LAST;
