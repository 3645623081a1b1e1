-- A person has found out what became of a held step, by asking the provider: whether it happened, and what shows it.
-- The answer is stored with the step's key, as if a worker had brought it; the engine goes on from there by itself,
-- so there is no second way to move an order. Only for a held workflow, in the midst of that very step.
-- Verdicts: settled, known (the key has its answer already), not_held, other_step, unknown.
CREATE OR REPLACE FUNCTION makegood.settle_step(
  p_workflow_type text, p_entity_id text, p_step text, p_key text, p_response jsonb, p_actor text, p_reason text,
  p_proof text)
RETURNS TABLE (verdict text, id uuid, current_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
  v_status text;
  v_step text;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  PERFORM makegood.check_proof(p_proof);
  SELECT * INTO e FROM makegood.workflow_executions AS r
   WHERE r.workflow_type = p_workflow_type AND r.entity_id = p_entity_id FOR UPDATE;
  SELECT s.step INTO v_step FROM makegood.workflow_states s
   WHERE s.workflow_type = e.workflow_type AND s.state = e.current_state AND s.kind = 'doing';
  SELECT k.status INTO v_status FROM makegood.idempotency_keys k WHERE k.key = p_key FOR UPDATE;
  v_verdict := CASE WHEN e.id IS NULL THEN 'unknown' WHEN e.held_at IS NULL THEN 'not_held'
                    WHEN v_step IS DISTINCT FROM p_step OR v_status IS NULL THEN 'other_step'
                    WHEN v_status IN ('known', 'recorded') THEN 'known' ELSE 'settled' END;
  IF v_verdict = 'settled' THEN
    UPDATE makegood.idempotency_keys AS k
       SET status = 'known', response = p_response, first_sent_at = coalesce(k.first_sent_at, clock_timestamp()),
           caller = NULL, caller_until = NULL
     WHERE k.key = p_key;
    PERFORM makegood.release_workflow(p_workflow_type, p_entity_id, p_actor, p_reason);
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (p_actor, 'settle', p_entity_id, left(btrim(p_reason), 2000), jsonb_build_object(
            'workflow_type', p_workflow_type, 'workflow_id', e.id, 'step', p_step, 'key', p_key,
            'outcome', p_response->>'outcome', 'proof', btrim(p_proof), 'amount_minor', e.amount_minor,
            'currency', e.currency));
  END IF;
  RETURN QUERY SELECT v_verdict, e.id, e.current_state;
END
$$;
COMMENT ON FUNCTION makegood.settle_step(text, text, text, text, jsonb, text, text, text) IS
  'Records what became of a held step, found out by a person, with the proof; settled, known, not_held, other_step or unknown.';

CREATE OR REPLACE FUNCTION makegood.check_proof(p_proof text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF length(btrim(coalesce(p_proof, ''))) NOT BETWEEN 1 AND 500 THEN
    RAISE EXCEPTION 'a settlement needs its proof in 1 to 500 characters' USING ERRCODE = 'MG011',
      HINT = 'For example the id of the refund that was made by hand.';
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.check_proof(text) IS 'Refuses a settlement without what shows it.';
