-- Metric 4 on the overview: how many of those that ended were undone, and what is owed now (see ../compensation_rate.sql).
SELECT count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended,
       count(*) FILTER (WHERE current_state = 'compensated') AS compensated,
       count(*) FILTER (WHERE current_state = 'failed') AS failed,
       count(*) FILTER (WHERE current_state = 'compensating') AS compensating,
       count(*) FILTER (WHERE current_state = 'compensating' AND held_at IS NOT NULL) AS held
  FROM makegood.workflow_executions
 WHERE (finished_at > now() - make_interval(secs => %(period_seconds)s) OR current_state = 'compensating')
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s);
