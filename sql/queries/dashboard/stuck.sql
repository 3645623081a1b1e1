-- Metric 3 on the overview: what makes no progress now, by how long already, with its money (see ../stuck_count.sql).
SELECT CASE WHEN updated_at >= now() - interval '15 minutes' THEN 0 WHEN updated_at >= now() - interval '1 hour' THEN 1
            WHEN updated_at >= now() - interval '1 day' THEN 2 ELSE 3 END AS band,
       currency, count(*) AS stuck, count(held_at) AS held, sum(amount_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(updated_at))::float8 AS oldest_seconds
  FROM makegood.workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated')
   AND updated_at < now() - interval '5 minutes'
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY 1, 2
 ORDER BY 1, amount_minor DESC NULLS LAST
 LIMIT 1000;
