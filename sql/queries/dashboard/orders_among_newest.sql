-- Orders with this in the middle of their number, or whose charge has this payment. Among the newest only: no index knows
-- either, and a look at all has no bound.
SELECT e.entity_id, e.workflow_type, e.current_state, e.amount_minor, e.currency, e.created_at, e.updated_at, e.held_at
  FROM (SELECT * FROM makegood.workflow_executions ORDER BY id DESC LIMIT %(newest)s) AS e
 WHERE e.entity_id LIKE %(within)s OR e.context->'charge'->>'payment_intent' = %(text)s
 LIMIT %(limit)s;
