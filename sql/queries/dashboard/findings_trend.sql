-- How money at risk came and went, per day and currency: what was opened, and what was closed, in the last days; day is
-- null for all that stood before. One that broke again counts from its first day on.
SELECT CASE WHEN c.moment >= b.since THEN date_bin('1 day', c.moment, '2000-01-01 00:00+00') END AS day, f.currency,
       sum(c.sign)::bigint AS findings, sum(c.sign * f.amount_at_risk_minor)::bigint AS amount_minor
  FROM (SELECT date_bin('1 day', now() - make_interval(days => %(days)s), '2000-01-01 00:00+00') AS since) b
  JOIN makegood.reconciliation_findings f ON f.state <> 'resolved' OR f.resolved_at >= b.since
 CROSS JOIN LATERAL (VALUES (1, f.first_seen_at), (-1, f.resolved_at)) AS c(sign, moment)
 WHERE c.moment IS NOT NULL AND f.state <> 'ignored' AND f.currency IS NOT NULL
 GROUP BY day, f.currency
 ORDER BY f.currency, day NULLS FIRST;
