-- Remedies that move no money: our books are corrected, an order is taken on or stopped. Each is one transaction with its
-- row, its finding's history and its audit line.

-- Verdicts: corrected, recorded, resumed, stopped_order; left (a person decides), with why.
CREATE OR REPLACE FUNCTION makegood.apply_remedy(
  f makegood.reconciliation_findings, p_run_id uuid, p_terms jsonb, p_actor text)
RETURNS TABLE (verdict text, reason text, remedy_id uuid, workflow_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o makegood.reconciliation_remedies;
  v record;
BEGIN
  IF f.remedy IN ('correct', 'record') THEN
    SELECT * INTO v FROM makegood.correct_books(f) AS q;
  ELSIF f.remedy = 'resume' THEN
    SELECT * INTO v FROM makegood.resume_order(f, p_actor) AS q;
  ELSE
    SELECT * INTO v FROM makegood.stop_order(f, p_actor) AS q;
  END IF;
  IF v.verdict = 'left' THEN
    RETURN QUERY SELECT v.verdict, v.reason, NULL::uuid, NULL::uuid;
    RETURN;
  END IF;
  o := makegood.propose_remedy(f, p_run_id, makegood.environment_of(p_terms), 0,
    makegood.remedy_digest(f.class, f.charge_id, 0, f.currency), p_actor);
  UPDATE makegood.reconciliation_remedies AS r SET state = 'started', started_at = clock_timestamp(), workflow_id = v.workflow_id
   WHERE r.id = o.id;
  UPDATE makegood.reconciliation_remedies AS r SET state = 'succeeded', finished_at = clock_timestamp(), reason = v.reason
   WHERE r.id = o.id;
  PERFORM makegood.move_finding(f.id, v.finding_state, CASE v.finding_state WHEN 'resolved' THEN 'recorded' END, p_actor,
    v.reason, p_run_id);
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), 'remedy: ' || f.remedy, coalesce(f.order_id, f.unit), v.reason, jsonb_build_object(
          'remedy_id', o.id, 'finding_id', f.id, 'run_id', p_run_id, 'class', f.class, 'workflow_id', v.workflow_id));
  RETURN QUERY SELECT v.verdict, v.reason, o.id, v.workflow_id;
END
$$;
COMMENT ON FUNCTION makegood.apply_remedy(makegood.reconciliation_findings, uuid, jsonb, text) IS
  'Corrects, records, resumes or stops what a finding is about. Called under the finding''s lock.';

-- What the provider says is written into our books. Where there is nothing to write (a rounding, a fee, a part that was
-- never shipped) the finding is acknowledged: resolved, it would be opened again by the next full run.
CREATE OR REPLACE FUNCTION makegood.correct_books(f makegood.reconciliation_findings)
RETURNS TABLE (verdict text, reason text, workflow_id uuid, finding_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_reason text;
  v_done boolean;
  v_off bigint;
BEGIN
  CASE f.class
    WHEN 'D06' THEN
      v_reason := 'our order says fulfilled, as its workflow does';
      v_done := makegood.correct_order(f.order_id, 'fulfilled', NULL, NULL, NULL);
    WHEN 'D18' THEN
      v_reason := format('our order knows of %s refunded', f.amount_at_risk_minor);
      v_done := makegood.correct_order(f.order_id, NULL, f.amount_at_risk_minor, NULL, NULL);
    WHEN 'D24' THEN
      v_reason := 'our order knows of the dispute';
      v_done := makegood.correct_order(f.order_id, NULL, NULL, true, NULL);
    WHEN 'D25' THEN
      v_off := f.amount_at_risk_minor + coalesce((SELECT q.written_off_minor FROM makegood.reconcilable_orders q
                                                   WHERE q.order_id = f.order_id), 0);
      v_reason := format('%s of our order is written off', v_off);
      v_done := makegood.correct_order(f.order_id, NULL, NULL, true, v_off);
    WHEN 'D09' THEN
      RETURN QUERY SELECT 'recorded', 'the row counts once', NULL::uuid, 'resolved';
      RETURN;
    WHEN 'D11', 'D15', 'D30' THEN
      RETURN QUERY SELECT 'recorded', 'known, and nothing is to be done', NULL::uuid, 'acknowledged';
      RETURN;
    ELSE
      RETURN QUERY SELECT 'left', format('nobody knows how to record %s', f.class), NULL::uuid, NULL::text;
      RETURN;
  END CASE;
  IF v_done IS TRUE THEN
    RETURN QUERY SELECT CASE f.remedy WHEN 'correct' THEN 'corrected' ELSE 'recorded' END, v_reason, NULL::uuid, 'resolved';
  ELSE
    RETURN QUERY SELECT 'left', format('order %s cannot be corrected from here: a person decides', f.order_id), NULL::uuid, NULL::text;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.correct_books(makegood.reconciliation_findings) IS
  'Writes into our books what the provider''s say, as the finding''s class asks for.';

-- The order goes on under its own workflow and keys. What is held is a person's; what a worker has is under way. The
-- finding closes by itself when the order is done.
CREATE OR REPLACE FUNCTION makegood.resume_order(f makegood.reconciliation_findings, p_actor text)
RETURNS TABLE (verdict text, reason text, workflow_id uuid, finding_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
BEGIN
  e := makegood.lock_order(f.order_id);
  IF e.id IS NULL OR e.finished_at IS NOT NULL OR e.held_at IS NOT NULL OR e.lease_until > clock_timestamp() THEN
    RETURN QUERY SELECT 'left', CASE WHEN e.id IS NULL THEN 'the order has no workflow' WHEN e.finished_at IS NOT NULL
      THEN 'its workflow has ended' WHEN e.held_at IS NOT NULL THEN 'its workflow is held: a person decides'
      ELSE 'a worker has it' END, e.id, NULL::text;
    RETURN;
  END IF;
  PERFORM makegood.release_workflow(e.workflow_type, e.entity_id, p_actor, format('finding %s (%s)', f.id, f.class));
  RETURN QUERY SELECT 'resumed', format('its workflow goes on from %s', e.current_state), e.id, NULL::text;
END
$$;
COMMENT ON FUNCTION makegood.resume_order(makegood.reconciliation_findings, text) IS
  'Lets the workflow of a finding''s order go on at once, unless it is held.';

-- The money is back and the order goes on (D23): it is asked to be undone, and held where no worker has it. Undoing it
-- would refund once more, which the provider refuses; a person settles that. Where the charge failed (D07) there is
-- nothing to undo that a person may not still have paid for: it is only held.
CREATE OR REPLACE FUNCTION makegood.stop_order(f makegood.reconciliation_findings, p_actor text)
RETURNS TABLE (verdict text, reason text, workflow_id uuid, finding_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
  v_why text := format('%s, and the order went on: finding %s (%s)',
    CASE f.class WHEN 'D07' THEN 'its charge failed' ELSE 'refunded at the provider' END, f.id, f.class);
  v_busy boolean;
BEGIN
  e := makegood.lock_order(f.order_id);
  IF e.id IS NULL OR e.finished_at IS NOT NULL OR e.held_at IS NOT NULL OR e.cancel_requested THEN
    RETURN QUERY SELECT 'left', CASE WHEN e.id IS NULL THEN 'the order has no workflow' WHEN e.finished_at IS NOT NULL
      THEN 'its workflow has ended' ELSE 'its workflow is stopped already: a person decides' END, e.id, NULL::text;
    RETURN;
  END IF;
  v_busy := coalesce(e.lease_until > clock_timestamp(), false);
  IF f.class <> 'D07' THEN
    PERFORM makegood.request_cancel(e.workflow_type, e.entity_id, p_actor, v_why);
  ELSIF v_busy THEN
    RETURN QUERY SELECT 'left', 'a worker has it', e.id, NULL::text;
    RETURN;
  END IF;
  IF NOT v_busy THEN
    PERFORM makegood.pause_workflows(jsonb_build_array(jsonb_build_object(
      'id', e.id, 'fence', e.fence, 'hold_reason', v_why,
      'error_type', CASE f.class WHEN 'D07' THEN 'not_paid' ELSE 'refunded_elsewhere' END)));
  END IF;
  RETURN QUERY SELECT 'stopped_order', v_why, e.id, NULL::text;
END
$$;
COMMENT ON FUNCTION makegood.stop_order(makegood.reconciliation_findings, text) IS
  'Holds a finding''s order for a person, and asks for it to be undone where its money is back.';

CREATE OR REPLACE FUNCTION makegood.lock_order(p_order_id text) RETURNS makegood.workflow_executions
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
BEGIN
  SELECT w.* INTO e FROM makegood.workflow_executions w JOIN makegood.reconcilable_orders q ON q.order_id = w.entity_id
     AND coalesce(q.workflow_type, 'checkout') = w.workflow_type
   WHERE w.entity_id = p_order_id FOR UPDATE OF w;
  RETURN e;
END
$$;
COMMENT ON FUNCTION makegood.lock_order(text) IS 'The workflow that carries out an order, locked; nulls if there is none.';
