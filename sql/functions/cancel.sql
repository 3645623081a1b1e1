-- Asking for an order to be undone. Only a flag: the engine honours it at the next step border.

-- Verdicts: requested, already_requested, compensating (it is being undone anyway), too_late (it is
-- finished), unknown. Completing and cancelling meet on the row's lock: one of them is first.
CREATE OR REPLACE FUNCTION makegood.request_cancel(
  p_workflow_type text, p_entity_id text, p_actor text, p_reason text)
RETURNS TABLE (verdict text, current_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
  v_reason text := left(btrim(p_reason), 2000);
BEGIN
  IF length(coalesce(v_reason, '')) = 0 OR length(btrim(coalesce(p_actor, ''))) = 0 THEN
    RAISE EXCEPTION 'a cancel request needs who asks and why' USING ERRCODE = 'MG011';
  END IF;
  UPDATE makegood.workflow_executions AS u
     SET cancel_requested = true, cancel_requested_by = p_actor, cancel_reason = v_reason
   WHERE u.workflow_type = p_workflow_type AND u.entity_id = p_entity_id
     AND u.finished_at IS NULL AND NOT u.cancel_requested AND u.current_state <> 'compensating'
  RETURNING * INTO e;
  IF FOUND THEN
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (p_actor, 'cancel', p_entity_id, v_reason,
            jsonb_build_object('workflow_type', p_workflow_type, 'workflow_id', e.id, 'state', e.current_state));
    RETURN QUERY SELECT 'requested', e.current_state;
    RETURN;
  END IF;
  SELECT * INTO e FROM makegood.workflow_executions AS r
   WHERE r.workflow_type = p_workflow_type AND r.entity_id = p_entity_id;
  RETURN QUERY SELECT CASE WHEN e.id IS NULL THEN 'unknown' WHEN e.finished_at IS NOT NULL THEN 'too_late'
                           WHEN e.current_state = 'compensating' THEN 'compensating'
                           ELSE 'already_requested' END, e.current_state;
END
$$;
COMMENT ON FUNCTION makegood.request_cancel(text, text, text, text) IS
  'Asks for a workflow to be undone at its next step border, with who and why; requested, already_requested, compensating, too_late or unknown.';
