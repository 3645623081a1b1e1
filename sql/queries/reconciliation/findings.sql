-- Findings as they stand, what waits for somebody first, then by money; at most so many, and how many there are.
SELECT f.id, f.class, f.state, f.order_id, f.charge_id, f.unit, f.amount_at_risk_minor, f.currency, f.remedy,
       f.first_seen_at, f.last_seen_at, f.runs_seen, f.reopened, f.resolved_at, f.resolution, f.ignored_until, f.note,
       f.details->'also' AS also, coalesce(c.exponent, 2) AS exponent, count(*) OVER () AS all_findings
  FROM makegood.reconciliation_findings f
  LEFT JOIN makegood.currencies c ON c.code = f.currency
 WHERE (%(class)s::text IS NULL OR f.class = %(class)s)
   AND CASE WHEN %(state)s::text IS NULL THEN f.state <> 'resolved' ELSE f.state = %(state)s END
   AND (%(order)s::text IS NULL OR f.order_id = %(order)s)
 ORDER BY f.state = 'open' DESC, f.amount_at_risk_minor / power(10::numeric, coalesce(c.exponent, 2)) DESC, f.first_seen_at, f.id
 LIMIT %(limit)s
