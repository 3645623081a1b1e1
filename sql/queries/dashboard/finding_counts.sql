-- What is open, per class, state, remedy and currency.
SELECT f.class, f.state, f.remedy, f.currency, count(*) AS findings, sum(f.amount_at_risk_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(f.first_seen_at))::float8 AS oldest_seconds
  FROM makegood.reconciliation_findings f
 WHERE f.state <> 'resolved'
 GROUP BY f.class, f.state, f.remedy, f.currency
 ORDER BY f.class, amount_minor DESC;
