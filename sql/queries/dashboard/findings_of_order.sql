-- What the reconciliation found about one order, the newest first.
SELECT f.id, f.class, f.state, f.amount_at_risk_minor AS amount_minor, f.currency, f.remedy, f.first_seen_at, f.resolution
  FROM makegood.reconciliation_findings f
 WHERE f.order_id = %(order)s
 ORDER BY f.first_seen_at DESC, f.id DESC
 LIMIT 20;
