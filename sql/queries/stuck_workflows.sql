-- What is stuck: not finished, and without progress for five minutes. Held ones are in it; a person is asked.
SELECT id, workflow_type, entity_id, current_state, updated_at
  FROM workflow_executions
 WHERE current_state NOT IN ('completed', 'failed', 'compensated')
   AND updated_at < NOW() - INTERVAL '5 minutes'
 ORDER BY updated_at;
