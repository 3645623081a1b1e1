-- What was proposed and done about a finding, the newest first, with the second person where one was asked.
SELECT r.id, r.remedy, r.state, r.amount_minor, r.currency, r.charge_id, r.digest, r.entity_id, r.refund_ref, r.reason,
       r.proposed_by, r.proposed_at, r.started_at, r.finished_at, a.id AS approval_id, a.state AS approval_state,
       a.requested_by, a.expires_at, a.approved_by, a.approval_reason, a.refused_by, a.refusal_reason
  FROM makegood.reconciliation_remedies r
  LEFT JOIN makegood.approvals a ON a.id = r.approval_id
 WHERE r.finding_id = %(id)s::uuid
 ORDER BY r.proposed_at DESC, r.id DESC
 LIMIT 20;
