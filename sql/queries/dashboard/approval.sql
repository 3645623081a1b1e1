-- One approval as it is this moment.
SELECT id, action, subject, digest, amount_minor, currency, requested_by, requested_at, reason, expires_at, approved_by,
       approved_at, approval_reason, CASE WHEN state IN ('requested', 'approved') AND expires_at <= clock_timestamp()
       THEN 'expired' ELSE state END AS state
  FROM makegood.approvals
 WHERE id = %(id)s;
