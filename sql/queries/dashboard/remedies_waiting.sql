-- Refunds that wait for a second person, or were approved and not begun, the oldest first.
SELECT r.finding_id, r.class, r.state, r.order_id, r.charge_id, r.amount_minor, r.currency, r.proposed_at, a.requested_by,
       a.expires_at
  FROM makegood.reconciliation_remedies r
  LEFT JOIN makegood.approvals a ON a.id = r.approval_id
 WHERE r.state IN ('awaiting_approval', 'approved')
 ORDER BY r.proposed_at, r.id
 LIMIT %(limit)s;
