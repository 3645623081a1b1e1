-- Our side of a finding: the order as our books have it, and the workflows that carry it out.
SELECT o.order_id, o.status, o.amount_minor, o.currency, o.payment_ref, o.refunded_minor, o.dispute_known, o.written_off_minor,
       o.partial_shipment, o.created_at, o.changed_at, e.workflow_type, e.current_state, e.held_at, e.held_reason, e.deadline_at,
       e.updated_at, e.deadline_at < now() AND e.finished_at IS NULL AS late
  FROM makegood.reconcilable_orders o
  LEFT JOIN makegood.workflow_executions e ON e.entity_id = o.order_id AND e.workflow_type = o.workflow_type
 WHERE o.order_id = %(order)s
 LIMIT 5;
