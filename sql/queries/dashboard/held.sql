-- What waits for a person, per kind and currency: undos that are held, and orders parked on their way forward.
SELECT current_state = 'compensating' AS undo, currency, count(*) AS workflows, sum(amount_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(held_at))::float8 AS oldest_seconds,
       (array_agg(entity_id ORDER BY held_at))[1:3] AS orders
  FROM makegood.workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated') AND held_at IS NOT NULL
   AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
 GROUP BY undo, currency
 ORDER BY undo DESC, amount_minor DESC NULLS LAST;
