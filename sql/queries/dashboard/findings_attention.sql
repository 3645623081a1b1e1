-- What differs from the provider's books and nobody has looked at yet, per class and currency, the most money first.
-- What is only recorded, or waits for an undo, needs nobody.
SELECT f.class, count(*)::integer AS findings, sum(f.amount_at_risk_minor)::bigint AS amount_minor, f.currency,
       extract(epoch FROM now() - min(f.first_seen_at))::float8 AS oldest_seconds
  FROM makegood.reconciliation_findings f
  LEFT JOIN makegood.currencies c ON c.code = f.currency
 WHERE f.state = 'open' AND f.remedy <> 'wait' AND f.class NOT IN ('D04', 'D09', 'D12', 'D15', 'D30')
 GROUP BY f.class, f.currency, c.exponent
 ORDER BY sum(f.amount_at_risk_minor) / power(10::numeric, coalesce(c.exponent, 2)) DESC, f.class LIMIT 5;
