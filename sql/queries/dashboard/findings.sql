-- Findings, the newest first: one page after a given place (keyset), and only what is asked for. `standing` is all that is
-- neither closed nor ignored.
SELECT f.id, f.class, f.state, f.unit, f.order_id, f.charge_id, f.amount_at_risk_minor AS amount_minor, f.currency, f.remedy,
       f.first_seen_at, f.last_seen_at, f.runs_seen, f.reopened, f.resolution, f.note
  FROM makegood.reconciliation_findings f
 WHERE (%(class)s::text IS NULL OR f.class = %(class)s)
   AND (%(order)s::text IS NULL OR f.order_id = %(order)s)
   AND (%(remedy)s::text IS NULL OR f.remedy = %(remedy)s)
   AND CASE %(state)s::text WHEN 'any' THEN true WHEN 'standing' THEN f.state IN ('open', 'acknowledged', 'remedying')
            ELSE f.state = %(state)s END
   AND (%(after_time)s::timestamptz IS NULL OR (f.first_seen_at, f.id) < (%(after_time)s, %(after_id)s::uuid))
 ORDER BY f.first_seen_at DESC, f.id DESC
 LIMIT %(limit)s;
