-- One finding, or those of one order or charge, each with both sides as they are now and what became of it so far.
SELECT jsonb_build_object(
  'finding', to_jsonb(f),
  'order', (SELECT to_jsonb(o) - 'changed_xid' FROM makegood.reconcilable_orders o WHERE o.order_id = f.order_id),
  'workflow', (SELECT jsonb_build_object('state', e.current_state, 'held', e.held_at IS NOT NULL, 'deadline_at', e.deadline_at,
                        'finished_at', e.finished_at)
                 FROM makegood.reconcilable_orders o
                 JOIN makegood.workflow_executions e ON e.entity_id = o.order_id AND e.workflow_type = o.workflow_type
                WHERE o.order_id = f.order_id),
  'charges', coalesce((
     SELECT jsonb_agg(to_jsonb(c) - 'changed_xid' || jsonb_build_object(
              'refunds', coalesce((SELECT jsonb_agg(to_jsonb(r) - 'changed_xid' ORDER BY r.created_at, r.id)
                                     FROM makegood.provider_refunds r WHERE r.charge_id = c.id), '[]'),
              'disputes', coalesce((SELECT jsonb_agg(to_jsonb(d) - 'changed_xid' ORDER BY d.created_at, d.id)
                                      FROM makegood.provider_disputes d WHERE d.charge_id = c.id), '[]'))
              ORDER BY c.created_at, c.id)
       FROM (SELECT k.* FROM makegood.provider_charges k WHERE k.id IN (
               SELECT f.charge_id
               UNION SELECT l.id FROM makegood.provider_charges l WHERE l.order_ref = f.order_id
               UNION SELECT l.id FROM makegood.reconcilable_orders o JOIN makegood.provider_charges l
                       ON l.payment_ref = o.payment_ref WHERE o.order_id = f.order_id)
             ORDER BY k.created_at, k.id LIMIT 50) c), '[]'),
  'history', coalesce((SELECT jsonb_agg(to_jsonb(h) - 'finding_id' ORDER BY h.id)
                         FROM makegood.reconciliation_history h WHERE h.finding_id = f.id), '[]'),
  'exponents', (SELECT jsonb_object_agg(c.code, c.exponent) FROM makegood.currencies c)
) AS document
  FROM makegood.reconciliation_findings f
 WHERE f.id = %(id)s::uuid OR f.order_id = %(name)s OR f.unit = 'charge:' || %(name)s
 ORDER BY f.state <> 'resolved' DESC, f.first_seen_at DESC LIMIT %(limit)s
