-- Metric 4: the share of workflows that had to be undone, of those that ended in the last day, and what is still owed.
SELECT workflow_type,
       count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended,
       count(*) FILTER (WHERE current_state = 'compensated') AS compensated,
       count(*) FILTER (WHERE current_state = 'compensating') AS compensating,
       count(*) FILTER (WHERE current_state = 'compensating' AND held_at IS NOT NULL) AS held,
       round(1.0 * count(*) FILTER (WHERE current_state = 'compensated')
             / nullif(count(*) FILTER (WHERE finished_at IS NOT NULL), 0), 4) AS compensation_rate
  FROM workflow_executions
 WHERE finished_at > NOW() - INTERVAL '1 day' OR current_state = 'compensating'
 GROUP BY workflow_type
 ORDER BY workflow_type;
