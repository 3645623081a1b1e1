-- Everything a report says about one run, in one document and one snapshot; the newest run where none is named.
-- Findings are as they stand now: what a run found may have been put right since.
WITH run AS (
  SELECT r.* FROM makegood.reconciliation_runs r
   WHERE r.id = %(run_id)s::uuid OR %(run_id)s::uuid IS NULL
   ORDER BY r.started_at DESC LIMIT 1
), standing AS MATERIALIZED (
  SELECT f.*, f.first_seen_run = r.id AS is_new,
         power(10::numeric, coalesce(c.exponent, 2)) AS units
    FROM makegood.reconciliation_findings f CROSS JOIN run r
    LEFT JOIN makegood.currencies c ON c.code = f.currency
   WHERE f.state <> 'resolved'
)
SELECT jsonb_build_object(
  'run', to_jsonb(r) - 'since_xid' - 'until_xid',
  'job', (SELECT jsonb_build_object('triggered_by', j.triggered_by, 'parameters', j.parameters, 'state', j.state,
                                    'parts', j.parts, 'error', j.error)
            FROM makegood.job_runs j WHERE j.id = r.id),
  'written_at', clock_timestamp(),
  'exponents', (SELECT jsonb_object_agg(c.code, c.exponent) FROM makegood.currencies c),
  'totals', coalesce((SELECT jsonb_agg(jsonb_build_object('currency', t.currency, 'bucket', t.bucket,
                               'charges', t.charges, 'amount_minor', t.amount_minor) ORDER BY t.currency, t.bucket)
                        FROM makegood.reconciliation_totals t WHERE t.run_id = r.id), '[]'),
  'standings', coalesce((SELECT jsonb_agg(to_jsonb(s) ORDER BY s.class, s.currency, s.state, s.remedy) FROM (
     SELECT o.class, o.currency, o.state, o.remedy, count(*) AS findings, count(*) FILTER (WHERE o.is_new) AS new,
            sum(o.amount_at_risk_minor) AS at_risk_minor, min(o.first_seen_at) AS oldest
       FROM standing o GROUP BY 1, 2, 3, 4) s), '[]'),
  'ages', coalesce((SELECT jsonb_agg(to_jsonb(a) ORDER BY a.band) FROM (
     SELECT width_bucket(extract(epoch FROM clock_timestamp() - o.first_seen_at)::float8,
                         %(band_seconds)s::float8[]) AS band, count(*) AS findings
       FROM standing o WHERE o.state IN ('open', 'acknowledged', 'remedying') GROUP BY 1) a), '[]'),
  'changes', coalesce((SELECT jsonb_agg(to_jsonb(h) ORDER BY h.to_state, h.class) FROM (
     SELECT o.to_state, o.class, count(*) AS findings FROM makegood.reconciliation_history o
      WHERE o.run_id = r.id AND o.id > (SELECT max(m.id) FROM makegood.reconciliation_history m) - %(history)s::bigint
      GROUP BY 1, 2) h), '[]'),
  'trend', coalesce((SELECT jsonb_agg(to_jsonb(t) ORDER BY t.started_at) FROM (
     SELECT o.id, o.kind, o.state, o.started_at, o.looked_at, o.opened, o.closed, o.stale IS NOT NULL AS stale
       FROM makegood.reconciliation_runs o WHERE o.started_at <= r.started_at
      ORDER BY o.started_at DESC LIMIT %(trend)s::integer) t), '[]'),
  'findings', coalesce((SELECT jsonb_agg(to_jsonb(f) - 'rank' ORDER BY f.rank) FROM (
     SELECT o.id, o.class, o.state, o.order_id, o.charge_id, o.unit, o.amount_at_risk_minor, o.currency, o.remedy,
            o.first_seen_at, o.last_seen_at, o.runs_seen, o.reopened, o.is_new, o.ignored_until,
            o.details->'also' AS also,
            row_number() OVER (ORDER BY o.state = 'open' AND o.class <> ALL (%(recorded)s::text[]) DESC,
                               o.amount_at_risk_minor / o.units DESC, o.first_seen_at, o.id) AS rank
       FROM standing o ORDER BY rank LIMIT %(limit)s::integer) f), '[]')
) AS document
  FROM run r
