-- What a person does about what is held. Each has a reason, and its line in operator_actions is in the same
-- transaction. Two people at once meet on the row's lock: the second sees what the first did.

-- Lets a workflow go on: a held one is due at once with a new budget of attempts, one that waits for its next
-- attempt is due at once; recovery, which looks for what is past its deadline, takes it with the next run. Keys stay what they were: what was sent before is replayed, or looked up.
-- Verdicts: released, hastened (it was waiting), due (nothing to do: it is due or being worked on),
-- finished, unknown.
CREATE OR REPLACE FUNCTION makegood.release_workflow(
  p_workflow_type text, p_entity_id text, p_actor text, p_reason text)
RETURNS TABLE (verdict text, id uuid, current_state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz;
  e makegood.workflow_executions;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  SELECT * INTO e FROM makegood.workflow_executions AS r
   WHERE r.workflow_type = p_workflow_type AND r.entity_id = p_entity_id FOR UPDATE;
  -- Only now: whoever had the row while we waited for it may have made it due at a time after our asking.
  t := clock_timestamp();
  v_verdict := CASE WHEN e.id IS NULL THEN 'unknown' WHEN e.finished_at IS NOT NULL THEN 'finished'
                    WHEN e.held_at IS NOT NULL THEN 'released'
                    WHEN e.lease_until IS NULL AND e.next_attempt_at > t THEN 'hastened' ELSE 'due' END;
  IF v_verdict IN ('released', 'hastened') THEN
    -- The fence rises, so that whoever held it can write nothing more.
    UPDATE makegood.workflow_executions AS u
       SET held_at = NULL, held_reason = NULL, next_attempt_at = t, deadline_at = least(u.deadline_at, t),
           fence = u.fence + 1, lease_owner = NULL, lease_until = NULL,
           attempts = CASE WHEN v_verdict = 'released' THEN 0 ELSE u.attempts END
     WHERE u.id = e.id;
    UPDATE makegood.compensations AS c
       SET state = CASE WHEN c.state = 'held' THEN 'pending' ELSE c.state END, next_attempt_at = t,
           attempts = CASE WHEN v_verdict = 'released' THEN 0 ELSE c.attempts END
     WHERE c.workflow_id = e.id AND c.state <> 'succeeded';
    UPDATE makegood.dead_letters AS d
       SET state = 'redriving', redrives = d.redrives + 1, note = left(btrim(p_reason), 2000)
     WHERE d.workflow_id = e.id AND d.state = 'parked';
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (p_actor, CASE v_verdict WHEN 'released' THEN 'release' ELSE 'retry now' END, p_entity_id,
            left(btrim(p_reason), 2000), jsonb_build_object('workflow_type', p_workflow_type, 'workflow_id', e.id,
            'state', e.current_state, 'held_reason', e.held_reason));
  END IF;
  RETURN QUERY SELECT v_verdict, e.id, e.current_state;
END
$$;
COMMENT ON FUNCTION makegood.release_workflow(text, text, text, text) IS
  'Lets a held or waiting workflow go on at once, with who and why; released, hastened, due, finished or unknown.';

-- Records that an undo was done elsewhere (a refund made by hand), with the proof; it is never sent again, and
-- the workflow goes on. Refused while a worker has the workflow: its call may be under way. Refused where its key has
-- the answer that it was done: a worker that was cut off brought it late, and a retry takes it from there.
-- Verdicts: settled, done (it had succeeded already), known, busy, unknown.
CREATE OR REPLACE FUNCTION makegood.settle_compensation(
  p_workflow_type text, p_entity_id text, p_step text, p_actor text, p_reason text, p_proof text)
RETURNS TABLE (verdict text, id uuid, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  e makegood.workflow_executions;
  c makegood.compensations;
  v_known boolean;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  PERFORM makegood.check_proof(p_proof);
  SELECT * INTO e FROM makegood.workflow_executions AS r
   WHERE r.workflow_type = p_workflow_type AND r.entity_id = p_entity_id FOR UPDATE;
  SELECT * INTO c FROM makegood.compensations AS r WHERE r.workflow_id = e.id AND r.step = p_step FOR UPDATE;
  v_known := makegood.is_undo_known(c.idempotency_key);
  v_verdict := CASE WHEN c.id IS NULL THEN 'unknown' WHEN c.state = 'succeeded' THEN 'done'
                    WHEN e.lease_until > t THEN 'busy' WHEN v_known THEN 'known' ELSE 'settled' END;
  IF v_verdict = 'settled' THEN
    UPDATE makegood.compensations AS u
       SET state = 'succeeded', succeeded_at = t, last_error = NULL, result = jsonb_build_object(
             'settled_elsewhere', true, 'by', p_actor, 'proof', btrim(p_proof))
     WHERE u.id = c.id;
    -- Held by this undo: the others go on. Held by another one: it stays.
    UPDATE makegood.workflow_executions AS u
       SET fence = u.fence + 1, lease_owner = NULL, lease_until = NULL, next_attempt_at = t,
           held_at = NULL, held_reason = NULL
     WHERE u.id = e.id AND NOT EXISTS (SELECT FROM makegood.compensations o
                                        WHERE o.workflow_id = e.id AND o.state = 'held');
    UPDATE makegood.dead_letters AS d
       SET state = 'redriving', note = left(format('settled elsewhere: %s', btrim(p_proof)), 2000)
     WHERE d.workflow_id = e.id AND d.state = 'parked'
       AND NOT EXISTS (SELECT FROM makegood.compensations o WHERE o.workflow_id = e.id AND o.state = 'held');
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (p_actor, 'settle', p_entity_id, left(btrim(p_reason), 2000), jsonb_build_object(
            'workflow_type', p_workflow_type, 'workflow_id', e.id, 'step', p_step, 'compensation_id', c.id,
            'proof', btrim(p_proof), 'amount_minor', c.amount_minor, 'currency', c.currency));
  END IF;
  RETURN QUERY SELECT v_verdict, c.id, CASE WHEN v_verdict = 'settled' THEN 'succeeded' ELSE c.state END;
END
$$;
COMMENT ON FUNCTION makegood.settle_compensation(text, text, text, text, text, text) IS
  'Records that an undo was done elsewhere, with who, why and the proof; settled, done, known, busy or unknown.';

-- Locked, so that an answer that is being stored at this moment is waited for. A refusal is no reason not to settle:
-- it is why somebody did it by hand.
CREATE OR REPLACE FUNCTION makegood.is_undo_known(p_key text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k makegood.idempotency_keys;
BEGIN
  SELECT * INTO k FROM makegood.idempotency_keys AS r WHERE r.key = p_key FOR UPDATE;
  RETURN coalesce(k.status IN ('known', 'recorded') AND k.response->>'outcome' IS DISTINCT FROM 'failed', false);
END
$$;
COMMENT ON FUNCTION makegood.is_undo_known(text) IS
  'Whether the answer that an undo was done is stored with its key already.';

CREATE OR REPLACE FUNCTION makegood.check_actor(p_actor text, p_reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF length(btrim(coalesce(p_actor, ''))) NOT BETWEEN 1 AND 200 OR length(btrim(coalesce(p_reason, ''))) = 0 THEN
    RAISE EXCEPTION 'an action needs who acts (1 to 200 characters) and why' USING ERRCODE = 'MG011';
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.check_actor(text, text) IS 'Refuses an operator''s action without who and why.';
