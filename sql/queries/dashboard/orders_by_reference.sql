-- Orders of this payment or this customer, the newest first; a charge of the provider's leads to its order too.
WITH named AS MATERIALIZED (
  (SELECT o.order_id FROM makegood.reconcilable_orders o WHERE o.payment_ref = %(text)s LIMIT %(limit)s)
  UNION
  (SELECT o.order_id FROM makegood.reconcilable_orders o WHERE o.customer_ref = %(text)s LIMIT %(limit)s)
  UNION
  (SELECT c.order_ref FROM makegood.provider_charges c
    WHERE (c.id = %(text)s OR c.payment_ref = %(text)s) AND c.order_ref IS NOT NULL LIMIT %(limit)s)
)
SELECT e.entity_id, e.workflow_type, e.current_state, e.amount_minor, e.currency, e.created_at, e.updated_at, e.held_at
  FROM named n JOIN makegood.workflow_executions e ON e.entity_id = n.order_id
 ORDER BY e.created_at DESC, e.entity_id
 LIMIT %(limit)s;
