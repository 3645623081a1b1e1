-- Where is order 123? Everything known about one entity, in one document and one snapshot.
CREATE OR REPLACE FUNCTION makegood.timeline(p_entity_id text, p_workflow_type text DEFAULT NULL)
RETURNS SETOF jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT jsonb_build_object(
    'workflow', to_jsonb(e) - 'start_hash',
    'asked_at', clock_timestamp(),
    'transitions', (SELECT jsonb_agg(to_jsonb(t) - 'workflow_id' - 'entity_id' - 'xact' ORDER BY t.seq)
                      FROM makegood.workflow_transitions t WHERE t.workflow_id = e.id),
    'attempts', coalesce((SELECT jsonb_agg(to_jsonb(a) - 'workflow_id' ORDER BY a.started_at, a.attempt)
                      FROM makegood.step_attempts a WHERE a.workflow_id = e.id), '[]'),
    'compensations', coalesce((SELECT jsonb_agg(to_jsonb(c) - 'workflow_id' ORDER BY c."position" DESC)
                      FROM makegood.compensations c WHERE c.workflow_id = e.id), '[]'),
    'decisions', coalesce((SELECT jsonb_agg(to_jsonb(j) - 'workflow_id' - 'entity_id' || jsonb_build_object('job', r.job)
                                           ORDER BY j.id)
                      FROM makegood.job_decisions j LEFT JOIN makegood.job_runs r ON r.id = j.run_id
                     WHERE j.workflow_id = e.id), '[]'),
    'dead_letter', (SELECT to_jsonb(d) - 'payload' - 'workflow_id' - 'entity_id'
                      FROM makegood.dead_letters d WHERE d.workflow_id = e.id),
    'actions', coalesce((SELECT jsonb_agg(to_jsonb(o) - 'subject' ORDER BY o.id)
                      FROM makegood.operator_actions o
                     WHERE o.subject = ANY (ARRAY(
                       SELECT e.entity_id UNION ALL
                       SELECT f.id::text FROM makegood.reconciliation_findings f WHERE f.order_id = e.entity_id LIMIT 200))
                   ), '[]'),
    'definition', (SELECT w.definition FROM makegood.workflow_types w WHERE w.name = e.workflow_type))
    FROM makegood.workflow_executions e
   WHERE e.entity_id = p_entity_id AND (p_workflow_type IS NULL OR e.workflow_type = p_workflow_type)
   ORDER BY e.created_at
$$;
COMMENT ON FUNCTION makegood.timeline(text, text) IS
  'One jsonb document per workflow of an entity: the row, its transitions, attempts, compensations, jobs'' decisions, dead letter, and operators'' actions on it and on its findings.';
