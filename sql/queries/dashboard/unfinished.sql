-- What is under way, the longest without progress first: one page after a given place (keyset), and only what is asked for.
SELECT e.id, e.entity_id, e.workflow_type, e.current_state, e.amount_minor, e.currency, e.attempts, e.created_at,
       e.updated_at, e.next_attempt_at, e.held_at, e.held_reason, e.cancel_requested,
       extract(epoch FROM now() - e.updated_at)::float8 AS idle_seconds,
       CASE WHEN e.held_at IS NOT NULL THEN 'held'
            WHEN e.deadline_at < now() THEN 'stuck'
            WHEN e.lease_until > now() THEN 'running' ELSE 'waiting' END AS condition
  FROM makegood.workflow_executions e
 WHERE e.current_state NOT IN ('completed', 'failed', 'compensated')
   AND (%(workflow_type)s::text IS NULL OR e.workflow_type = %(workflow_type)s)
   AND (%(state)s::text IS NULL OR e.current_state = %(state)s)
   AND CASE %(show)s::text WHEN 'held' THEN e.held_at IS NOT NULL
            WHEN 'stuck' THEN e.held_at IS NULL AND e.deadline_at < now()
            WHEN 'moving' THEN e.held_at IS NULL AND e.deadline_at >= now()
            WHEN 'idle' THEN e.updated_at < now() - interval '5 minutes' -- as in stuck.sql, so that both count the same
            ELSE true END
   AND (%(after_time)s::timestamptz IS NULL OR (e.updated_at, e.id) > (%(after_time)s, %(after_id)s::uuid))
 ORDER BY e.updated_at, e.id
 LIMIT %(limit)s;
