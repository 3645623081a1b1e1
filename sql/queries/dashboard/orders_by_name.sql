-- Orders with this very number, or whose number begins with it.
SELECT entity_id, workflow_type, current_state, amount_minor, currency, created_at, updated_at, held_at
  FROM makegood.workflow_executions
 WHERE entity_id = %(text)s OR entity_id LIKE %(prefix)s
 ORDER BY entity_id, workflow_type
 LIMIT %(limit)s;
