-- What became of a finding, the newest change first.
SELECT h.from_state, h.to_state, h.class, h.changed_by, h.reason, h.run_id, h.changed_at
  FROM makegood.reconciliation_history h
 WHERE h.finding_id = %(id)s::uuid
 ORDER BY h.id DESC
 LIMIT 100;
