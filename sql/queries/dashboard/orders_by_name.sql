-- Orders with this very number, or whose number begins or ends with it: both have an index, a part from the middle has none.
WITH found AS MATERIALIZED (
  (SELECT t.workflow_id FROM makegood.workflow_transitions t
    WHERE t.seq = 1 AND t.entity_id LIKE %(begins)s ORDER BY t.entity_id USING ~<~ LIMIT %(limit)s)
  UNION
  (SELECT t.workflow_id FROM makegood.workflow_transitions t
    WHERE t.seq = 1 AND reverse(t.entity_id) LIKE %(ends)s LIMIT %(limit)s)
)
SELECT e.entity_id, e.workflow_type, e.current_state, e.amount_minor, e.currency, e.created_at, e.updated_at, e.held_at
  FROM found f JOIN makegood.workflow_executions e ON e.id = f.workflow_id
 ORDER BY e.entity_id <> %(text)s, e.entity_id NOT LIKE %(begins)s, e.entity_id, e.workflow_type
 LIMIT %(limit)s;
