-- One undo as it is this moment, for whoever is about to act on it.
SELECT c.id, c.step, c.state, c.attempts, c.amount_minor, c.currency, c.last_error, e.held_reason, e.current_state,
       coalesce(e.lease_until > clock_timestamp(), false) AS leased
  FROM makegood.compensations c JOIN makegood.workflow_executions e ON e.id = c.workflow_id
 WHERE e.workflow_type = %(workflow_type)s AND e.entity_id = %(order)s AND c.step = %(step)s;
