-- The other half of metric 4: what is being undone now, and how much of it is held (see ../compensation_rate.sql).
SELECT count(*) AS compensating, count(held_at) AS held
  FROM makegood.workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated') AND current_state = 'compensating'
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s);
