-- A few orders to begin with; ids rise with time.
SELECT entity_id, workflow_type, current_state, amount_minor, currency, created_at, updated_at, held_at
  FROM makegood.workflow_executions ORDER BY id DESC LIMIT %(limit)s;
