-- One finding, with what its remedy would refund and what people have set about it: policy, cap and kill switch.
SELECT f.id, f.unit, f.class, f.state, f.order_id, f.charge_id, f.amount_at_risk_minor AS amount_minor, f.currency, f.remedy,
       f.details, f.first_seen_at, f.last_seen_at, f.first_seen_run, f.last_seen_run, f.runs_seen, f.reopened, f.resolved_at,
       f.resolution, f.ignored_until, f.note, coalesce((f.details->>'act_minor')::bigint, f.amount_at_risk_minor) AS refund_minor,
       e.environment, coalesce(p.dry_run, true) AS dry_run, c.item_minor, s.stopped, s.changed_by AS stopped_by,
       s.reason AS stopped_reason, r.stale
  FROM makegood.reconciliation_findings f
  LEFT JOIN makegood.reconciliation_runs r ON r.id = f.last_seen_run
 CROSS JOIN LATERAL (SELECT CASE WHEN (r.terms->>'livemode')::boolean THEN 'live' ELSE 'test' END AS environment) e
  LEFT JOIN makegood.remedy_policy p ON p.environment = e.environment AND p.class = f.class
  LEFT JOIN makegood.remedy_caps c ON c.environment = e.environment AND c.currency = f.currency
  LEFT JOIN makegood.remedy_switch s ON true
 WHERE f.id = %(id)s::uuid;
