-- What waits for a second person, or for being carried out, of some kinds; the oldest first.
SELECT id, action, subject, digest, amount_minor, currency, requested_by, requested_at, reason, expires_at, approved_by,
       approved_at, approval_reason, state
  FROM makegood.approvals
 WHERE state IN ('requested', 'approved') AND expires_at > clock_timestamp() AND action = ANY (%(kinds)s::text[])
 ORDER BY requested_at
 LIMIT %(limit)s;
