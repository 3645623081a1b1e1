-- How many are under way, per condition and state; reads only what is unfinished.
SELECT current_state, count(*) AS workflows,
       count(held_at) AS held,
       count(*) FILTER (WHERE held_at IS NULL AND deadline_at < now()) AS stuck,
       count(*) FILTER (WHERE held_at IS NULL AND deadline_at >= now()) AS moving,
       count(*) FILTER (WHERE updated_at < now() - interval '5 minutes') AS idle
  FROM makegood.workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated')
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY current_state
 ORDER BY current_state
 LIMIT 500;
