-- Runs of the reconciliation, the newest first, and what became of each.
SELECT r.id, r.kind, r.state, r.started_at, extract(epoch FROM coalesce(r.finished_at, now()) - r.started_at)::float8 AS took_seconds,
       r.looked_at, r.opened, r.closed, r.stale, r.error,
       coalesce((SELECT bool_and(t.gap = 0) FROM (
         SELECT sum(CASE s.bucket WHEN 'provider' THEN s.amount_minor ELSE -s.amount_minor END) AS gap
           FROM makegood.reconciliation_totals s WHERE s.run_id = r.id GROUP BY s.currency) t), true) AS adds_up
  FROM makegood.reconciliation_runs r
 WHERE (%(before)s::timestamptz IS NULL OR r.started_at < %(before)s)
 ORDER BY r.started_at DESC LIMIT %(limit)s;
