-- Held for a person. Nothing is held without a dead letter that has the whole story, and an alert on its way:
-- both are written in the transaction that holds, and leave with it or not at all.

-- Called by pause_workflows, the only way to hold, for those it has just held.
CREATE OR REPLACE FUNCTION makegood.keep_held(p_held uuid[], p_items jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  -- Its undo first, so that the story has it as held too.
  UPDATE makegood.compensations AS c SET state = 'held', last_error = left(concat_ws(': ', i.error_type, i.error), 2000)
    FROM jsonb_to_recordset(p_items) AS i(id uuid, hold_reason text, error_type text, error text, compensation_id uuid)
   WHERE c.id = i.compensation_id AND c.workflow_id = i.id AND i.id = ANY (p_held) AND i.hold_reason IS NOT NULL
     AND c.state IN ('pending', 'running');
  WITH held AS MATERIALIZED (
    SELECT e.id, e.workflow_type, e.entity_id, e.current_state, e.fence, e.held_reason, e.amount_minor, e.currency,
           coalesce(i.step, s.step) AS step, coalesce(left(i.error_type, 200), 'held') AS error_type,
           coalesce(c.attempts, e.attempts) AS attempts,
           CASE WHEN e.current_state = 'compensating' THEN 'compensation' ELSE 'workflow' END AS source,
           convert_to(w.story::text, 'UTF8') AS story
      FROM jsonb_to_recordset(p_items) AS i(
        id uuid, hold_reason text, step text, error_type text, compensation_id uuid)
      JOIN makegood.workflow_executions e ON e.id = i.id AND e.id = ANY (p_held)
      LEFT JOIN makegood.workflow_states s ON s.workflow_type = e.workflow_type AND s.state = e.current_state
      LEFT JOIN makegood.compensations c ON c.id = i.compensation_id
      CROSS JOIN LATERAL makegood.timeline(e.entity_id, e.workflow_type) AS w(story)
     WHERE i.hold_reason IS NOT NULL
  ), letters AS (
    INSERT INTO makegood.dead_letters AS d (
      id, source, message_id, message_key, workflow_id, entity_id, payload, headers, error_type, error, signature,
      attempts, first_failed_at, last_failed_at)
    SELECT makegood.new_id(), h.source, h.id::text, h.workflow_type, h.id, h.entity_id, h.story,
           jsonb_strip_nulls(jsonb_build_object('workflow_type', h.workflow_type, 'state', h.current_state,
             'step', h.step, 'amount_minor', h.amount_minor, 'currency', h.currency)),
           h.error_type, h.held_reason, makegood.failure_signature(h.workflow_type, h.current_state, h.error_type,
             h.held_reason, h.entity_id), h.attempts, t, t
      FROM held h
    ON CONFLICT (workflow_id) DO UPDATE
       SET source = EXCLUDED.source, payload = EXCLUDED.payload, headers = EXCLUDED.headers,
           error_type = EXCLUDED.error_type, error = EXCLUDED.error, signature = EXCLUDED.signature,
           attempts = EXCLUDED.attempts, state = 'parked', last_failed_at = greatest(t, d.first_failed_at)
  )
  INSERT INTO makegood.outbox (topic, key, payload)
  SELECT 'alert', format('held-%s-%s', h.id, h.fence), jsonb_build_object(
           'kind', 'held_' || h.source, 'entity_id', h.entity_id, 'workflow_type', h.workflow_type,
           'state', h.current_state, 'step', h.step, 'amount_minor', h.amount_minor, 'currency', h.currency,
           'error_type', h.error_type, 'error', h.held_reason)
    FROM held h
  ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION makegood.keep_held(uuid[], jsonb) IS
  'Writes the dead letter and the alert of workflows that were just held: items {id, hold_reason, step, error_type, error, compensation_id}.';

-- One text for all that failed in the same way: ids and numbers are left out of it.
CREATE OR REPLACE FUNCTION makegood.failure_signature(
  p_workflow_type text, p_state text, p_error_type text, p_error text, p_entity_id text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT left(format('%s %s %s: %s', p_workflow_type, p_state, p_error_type,
    regexp_replace(replace(p_error, p_entity_id, '…'), '[[:alnum:]_-]*[0-9][[:alnum:]_-]*', '…', 'g')), 300)
$$;
COMMENT ON FUNCTION makegood.failure_signature(text, text, text, text, text) IS
  'The same text for failures that differ only in ids and numbers.';
