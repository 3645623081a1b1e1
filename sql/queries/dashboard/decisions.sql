-- What one run decided, in the order of deciding. Bounded by the run's own time, which is what the index knows.
SELECT d.id, d.entity_id, d.state, d.decision, d.reason, d.decided_at, e.current_state, e.held_at
  FROM makegood.job_runs r
  JOIN makegood.job_decisions d ON d.run_id = r.id AND d.decided_at >= r.started_at
                               AND d.decided_at <= greatest(r.expires_at, r.finished_at)
  LEFT JOIN makegood.workflow_executions e ON e.id = d.workflow_id
 WHERE r.id = %(run_id)s::uuid AND (%(after_id)s::bigint IS NULL OR d.id > %(after_id)s)
 ORDER BY d.id
 LIMIT %(limit)s;
