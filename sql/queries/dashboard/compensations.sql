-- Undos that are owed, by when they are tried next: held ones, or all others. One page after a given place (keyset).
SELECT c.id, e.entity_id, e.workflow_type, c.step, c.state, c.attempts, c.next_attempt_at, c.amount_minor, c.currency,
       c.last_error, c.created_at, e.held_at, e.held_reason, e.lease_until > now() AS leased,
       extract(epoch FROM now() - c.created_at)::float8 AS owed_seconds,
       extract(epoch FROM c.next_attempt_at - now())::float8 AS next_seconds,
       (SELECT (s.step->>'undo_attempts_max')::int
          FROM makegood.workflow_types w, jsonb_array_elements(w.definition->'steps') AS s(step)
         WHERE w.name = e.workflow_type AND s.step->>'name' = c.step LIMIT 1) AS attempts_max
  FROM makegood.compensations c
  JOIN makegood.workflow_executions e ON e.id = c.workflow_id
 WHERE c.state <> 'succeeded' AND (e.held_at IS NOT NULL) = %(held)s
   AND (%(after_time)s::timestamptz IS NULL OR (c.next_attempt_at, c.id) > (%(after_time)s, %(after_id)s::uuid))
 ORDER BY c.next_attempt_at, c.id
 LIMIT %(limit)s;
