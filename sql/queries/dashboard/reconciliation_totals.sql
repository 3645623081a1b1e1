-- What the charges of some runs came to: provider, matched, pending and each class, per currency.
SELECT t.run_id, t.currency, t.bucket, t.charges, t.amount_minor::bigint AS amount_minor
  FROM makegood.reconciliation_totals t
 WHERE t.run_id = ANY (%(runs)s::uuid[])
 ORDER BY t.run_id, t.currency, t.bucket;
