-- What people did, the newest first; an approval says what it is of. One page before a given action (keyset).
SELECT id, actor, action, subject, reason, details->>'proof' AS proof, details->>'action' AS approval_of, acted_at
  FROM makegood.operator_actions
 WHERE %(before_id)s::bigint IS NULL OR id < %(before_id)s
 ORDER BY id DESC
 LIMIT %(limit)s;
