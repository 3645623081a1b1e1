-- The provider's side of a finding, as last fetched: the charges of its order and its own charge, their refunds and disputes.
WITH charges AS MATERIALIZED (
  SELECT c.* FROM makegood.provider_charges c WHERE c.order_ref = %(order)s
  UNION
  SELECT c.* FROM makegood.reconcilable_orders o JOIN makegood.provider_charges c ON c.payment_ref = o.payment_ref
   WHERE o.order_id = %(order)s
  UNION
  SELECT c.* FROM makegood.provider_charges c WHERE c.id = %(charge)s
  LIMIT 100
)
SELECT 'charge' AS kind, c.id, c.payment_ref AS belongs_to, c.status, c.captured_minor AS amount_minor, c.currency,
       c.created_at, c.livemode
  FROM charges c
UNION ALL
SELECT 'refund', r.id, r.charge_id, r.status, r.amount_minor, r.currency, r.created_at, c.livemode
  FROM charges c JOIN makegood.provider_refunds r ON r.charge_id = c.id
UNION ALL
SELECT 'dispute', d.id, d.charge_id, d.status, d.amount_minor, d.currency, d.created_at, c.livemode
  FROM charges c JOIN makegood.provider_disputes d ON d.charge_id = c.id
 ORDER BY created_at, kind
 LIMIT 300;
