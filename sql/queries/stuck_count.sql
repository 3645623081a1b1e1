-- Metric 3: how many are stuck and how much money is with them, per type, state and currency.
SELECT workflow_type, current_state, currency, count(*) AS stuck, sum(amount_minor) AS amount_minor,
       min(updated_at) AS oldest, count(held_at) AS held
  FROM workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated')
   AND updated_at < NOW() - INTERVAL '5 minutes'
 GROUP BY workflow_type, current_state, currency
 ORDER BY stuck DESC, workflow_type, current_state;
