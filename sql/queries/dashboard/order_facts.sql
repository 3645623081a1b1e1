-- One workflow as it is this moment, for whoever is about to act on it.
SELECT e.id, e.workflow_type, e.entity_id, e.current_state, e.held_at, e.held_reason, e.finished_at, e.cancel_requested,
       e.cancel_requested_by, e.attempts, e.next_attempt_at, e.amount_minor, e.currency,
       coalesce(e.lease_until > clock_timestamp(), false) AS leased
  FROM makegood.workflow_executions e
 WHERE e.workflow_type = %(workflow_type)s AND e.entity_id = %(order)s;
