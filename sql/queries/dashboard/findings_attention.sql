-- Open findings that need a person now: from a limit on (in hundredths of their currency's unit), or of a class that is
-- alarming whatever the amount.
SELECT f.class, f.currency, count(*) AS findings, sum(f.amount_at_risk_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(f.first_seen_at))::float8 AS oldest_seconds
  FROM makegood.reconciliation_findings f
  LEFT JOIN makegood.currencies c ON c.code = f.currency
 WHERE f.state = 'open' AND f.remedy <> 'wait' AND f.class <> ALL (%(recorded)s::text[])
   AND (f.amount_at_risk_minor * 100 >= %(above_minor)s * power(10::numeric, coalesce(c.exponent, 2))
        OR f.class = ANY (%(alarming)s::text[]))
 GROUP BY f.class, f.currency
 ORDER BY amount_minor DESC, f.class
 LIMIT 10;
