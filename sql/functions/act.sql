-- What people do through the dashboard. Its role may call these and nothing else. Each one reads the person's role in
-- the transaction that acts, calls the very function that the command line calls, and answers with a document:
-- {verdict, repeated, by, at, …}. A form that is sent twice, by a double click or after a lost answer, acts once and
-- is answered the same. Where somebody else was quicker, `by` and `at` say who and when.

-- Begins an action: the right, then the token. Returns NULL when it is new, or the first answer to the same form.
CREATE OR REPLACE FUNCTION makegood.begin_act(
  p_login text, p_role text, p_token uuid, p_action text, p_subject text, p_details jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a makegood.acts;
BEGIN
  PERFORM makegood.require_role(p_login, p_role);
  -- Waits for the same token's other transaction, if there is one: it then sees its answer, or takes its place.
  INSERT INTO makegood.acts (token, login, action, subject, details, acted_at)
  VALUES (p_token, lower(btrim(p_login)), p_action, p_subject, p_details, clock_timestamp())
  ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RETURN NULL;
  END IF;
  SELECT * INTO a FROM makegood.acts AS r WHERE r.token = p_token;
  IF (a.login, a.action, a.subject, a.details) IS DISTINCT FROM (lower(btrim(p_login)), p_action, p_subject, p_details) THEN
    RAISE EXCEPTION 'this form was sent before, about something else' USING ERRCODE = 'MG007',
      HINT = 'Open it anew.';
  END IF;
  RETURN a.result || jsonb_build_object('repeated', true, 'at', a.acted_at, 'by', a.login);
END
$$;
COMMENT ON FUNCTION makegood.begin_act(text, text, uuid, text, text, jsonb) IS
  'Checks the person''s right and takes the form''s token; NULL when new, else the answer it had.';

CREATE OR REPLACE FUNCTION makegood.end_act(p_token uuid, p_result jsonb) RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.acts AS a
     SET result = jsonb_strip_nulls(p_result), approval_id = (p_result->>'approval_id')::uuid
   WHERE a.token = p_token
  RETURNING a.result || '{"repeated": false}'
$$;
COMMENT ON FUNCTION makegood.end_act(uuid, jsonb) IS 'Keeps an action''s answer with its token, and returns it.';

-- Who acted on a subject last, for whoever came second.
CREATE OR REPLACE FUNCTION makegood.last_act(p_subject text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT jsonb_build_object('by', o.actor, 'at', o.acted_at, 'did', o.action)
                     FROM makegood.operator_actions o WHERE o.subject = p_subject ORDER BY o.id DESC LIMIT 1), '{}')
$$;
COMMENT ON FUNCTION makegood.last_act(text) IS 'The last operator''s action on a subject: by, at, did.';

-- Operator. Verdicts of release_workflow: released, hastened, due, finished, unknown.
CREATE OR REPLACE FUNCTION makegood.act_release(
  p_login text, p_token uuid, p_workflow_type text, p_entity_id text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_before jsonb := makegood.begin_act(p_login, 'operator', p_token, 'release', p_entity_id,
    jsonb_build_object('workflow_type', p_workflow_type, 'reason', p_reason));
BEGIN
  RETURN coalesce(v_before, makegood.end_act(p_token,
    makegood.release_one(lower(btrim(p_login)), p_workflow_type, p_entity_id, p_reason)));
END
$$;
COMMENT ON FUNCTION makegood.act_release(text, uuid, text, text, text) IS
  'An operator lets a held or waiting workflow go on.';

CREATE OR REPLACE FUNCTION makegood.release_one(p_login text, p_workflow_type text, p_entity_id text, p_reason text)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT jsonb_build_object('verdict', r.verdict, 'state', r.current_state)
                 || CASE WHEN r.verdict IN ('due', 'finished') THEN makegood.last_act(p_entity_id) ELSE '{}' END
            FROM makegood.release_workflow(p_workflow_type, p_entity_id, p_login, p_reason) r);
END
$$;
COMMENT ON FUNCTION makegood.release_one(text, text, text, text) IS
  'release_workflow as a document, with who was quicker where there was nothing left to do.';

-- Operator. A chosen group, at most 500 in one transaction; above a size a second person must have approved exactly
-- this list. Items are [{workflow_type, entity_id}]. Verdicts: done (with counts per verdict), needs_approval.
CREATE OR REPLACE FUNCTION makegood.act_release_group(
  p_login text, p_token uuid, p_items jsonb, p_reason text, p_above integer, p_valid_seconds double precision)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_items jsonb := makegood.check_group(p_items);
  v_count integer := jsonb_array_length(v_items);
  v_subject text := left(format('%s orders: %s', v_count,
    (SELECT string_agg(i.entity_id, ', ') FROM (SELECT e.entity_id FROM jsonb_to_recordset(v_items) AS e(entity_id text)
      LIMIT 5) i)), 200);
  v_details jsonb := jsonb_build_object('items', v_items, 'reason', p_reason);
  v_result jsonb := makegood.begin_act(p_login, 'operator', p_token, 'release group', v_subject, v_details);
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  IF v_count > p_above THEN
    v_result := makegood.ask_second_person('release group', v_subject, v_items, NULL, NULL, p_login, p_reason,
      p_valid_seconds);
  END IF;
  IF v_result IS NULL THEN
    -- In one order for everybody, so that two groups that overlap take turns.
    SELECT jsonb_build_object('verdict', 'done', 'orders', v_count, 'counts', jsonb_object_agg(g.verdict, g.n)) INTO v_result
      FROM (SELECT makegood.release_one(lower(btrim(p_login)), i.workflow_type, i.entity_id, p_reason)->>'verdict' AS verdict,
                   count(*) AS n
              FROM jsonb_to_recordset(v_items) AS i(workflow_type text, entity_id text) GROUP BY 1) g;
  END IF;
  RETURN makegood.end_act(p_token, v_result);
END
$$;
COMMENT ON FUNCTION makegood.act_release_group(text, uuid, jsonb, text, integer, double precision) IS
  'An operator lets a chosen group go on; above a size only what a second person has approved.';

CREATE OR REPLACE FUNCTION makegood.check_group(p_items jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jsonb_typeof(p_items) IS DISTINCT FROM 'array' OR jsonb_array_length(p_items) NOT BETWEEN 1 AND 500 THEN
    RAISE EXCEPTION 'a group has 1 to 500 orders' USING ERRCODE = 'MG011', HINT = 'Release them in several groups.';
  END IF;
  RETURN (SELECT jsonb_agg(DISTINCT jsonb_build_object('workflow_type', i.workflow_type, 'entity_id', i.entity_id))
            FROM jsonb_to_recordset(p_items) AS i(workflow_type text, entity_id text));
END
$$;
COMMENT ON FUNCTION makegood.check_group(jsonb) IS 'A group of orders, sorted and each once; refused when empty or too large.';

-- Operator. Tries an undo now, held or waiting. Verdicts of release_workflow, and no_undo where none is owed: one that
-- is held on its way forward would go further forward.
CREATE OR REPLACE FUNCTION makegood.act_retry_undo(
  p_login text, p_token uuid, p_workflow_type text, p_entity_id text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_result jsonb := makegood.begin_act(p_login, 'operator', p_token, 'retry undo', p_entity_id,
    jsonb_build_object('workflow_type', p_workflow_type, 'reason', p_reason));
  v_state text;
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  SELECT e.current_state INTO v_state FROM makegood.workflow_executions e
   WHERE e.workflow_type = p_workflow_type AND e.entity_id = p_entity_id FOR UPDATE;
  v_result := CASE WHEN v_state IN ('compensating', 'compensated')
    THEN makegood.release_one(lower(btrim(p_login)), p_workflow_type, p_entity_id, p_reason)
    ELSE jsonb_build_object('verdict', CASE WHEN v_state IS NULL THEN 'unknown' ELSE 'no_undo' END, 'state', v_state) END;
  RETURN makegood.end_act(p_token, v_result);
END
$$;
COMMENT ON FUNCTION makegood.act_retry_undo(text, uuid, text, text, text) IS 'An operator has an order''s undo tried now.';

-- Operator. Verdicts of settle_compensation: settled, done, known, busy, unknown; and needs_approval above a limit, in
-- minor units of whatever currency. What is approved is this undo, this amount and this proof.
CREATE OR REPLACE FUNCTION makegood.act_settle(
  p_login text, p_token uuid, p_workflow_type text, p_entity_id text, p_step text, p_proof text, p_reason text,
  p_above_minor bigint, p_valid_seconds double precision) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_details jsonb := jsonb_build_object('workflow_type', p_workflow_type, 'step', p_step, 'proof', btrim(p_proof),
    'reason', p_reason);
  v_result jsonb := makegood.begin_act(p_login, 'operator', p_token, 'settle', p_entity_id, v_details);
  c makegood.compensations;
  v_above boolean;
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  PERFORM makegood.check_actor(p_login, p_reason);
  PERFORM makegood.check_proof(p_proof);
  SELECT r.* INTO c FROM makegood.compensations r JOIN makegood.workflow_executions e ON e.id = r.workflow_id
   WHERE e.workflow_type = p_workflow_type AND e.entity_id = p_entity_id AND r.step = p_step;
  -- What is owed never changes, so it need not be locked to be compared. What is answered already is nobody's to approve.
  v_above := coalesce(c.amount_minor > p_above_minor AND c.state <> 'succeeded', false)
    AND NOT EXISTS (SELECT FROM makegood.idempotency_keys k WHERE k.key = c.idempotency_key
      AND k.status IN ('known', 'recorded') AND k.response->>'outcome' IS DISTINCT FROM 'failed');
  IF v_above THEN
    v_result := makegood.ask_second_person('settle', p_entity_id, v_details - 'reason' || jsonb_build_object(
      'amount_minor', c.amount_minor, 'currency', c.currency, 'compensation_id', c.id),
      c.amount_minor, c.currency, p_login, format('%s (proof: %s)', btrim(p_reason), btrim(p_proof)), p_valid_seconds);
  END IF;
  IF v_result IS NULL THEN
    SELECT jsonb_build_object('verdict', s.verdict, 'state', s.state)
           || CASE WHEN s.verdict = 'done' THEN makegood.last_act(p_entity_id) ELSE '{}' END INTO v_result
      FROM makegood.settle_compensation(p_workflow_type, p_entity_id, p_step, lower(btrim(p_login)), p_reason, p_proof) s;
    IF v_above AND v_result->>'verdict' IN ('busy', 'known') THEN
      -- The approval stays unused: the transaction is given up as a whole.
      RAISE EXCEPTION 'a worker has % right now, or had just now: its call may be under way', p_entity_id USING ERRCODE = 'MG021',
        HINT = 'Try again in a minute.';
    END IF;
  END IF;
  RETURN makegood.end_act(p_token, v_result);
END
$$;
COMMENT ON FUNCTION makegood.act_settle(text, uuid, text, text, text, text, text, bigint, double precision) IS
  'An operator records that an undo was done elsewhere; above a limit only what a second person has approved.';

-- NULL when a second person has approved exactly this, which is used up with it; otherwise the request for that.
CREATE OR REPLACE FUNCTION makegood.ask_second_person(
  p_action text, p_subject text, p_what jsonb, p_amount_minor bigint, p_currency text, p_login text, p_reason text,
  p_valid_seconds double precision) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_digest text := encode(sha256(convert_to(p_what::text, 'UTF8')), 'hex');
  v_result jsonb;
BEGIN
  IF makegood.use_approval(p_action, p_subject, v_digest, lower(btrim(p_login))) THEN
    RETURN NULL;
  END IF;
  SELECT jsonb_build_object('verdict', 'needs_approval', 'asked', r.verdict, 'approval_id', r.id) INTO v_result
    FROM makegood.request_approval(p_action, p_subject, v_digest, p_amount_minor, p_currency, lower(btrim(p_login)),
      p_reason, p_valid_seconds) r;
  RETURN v_result;
END
$$;
COMMENT ON FUNCTION makegood.ask_second_person(text, text, jsonb, bigint, text, text, text, double precision) IS
  'Uses up an approval of exactly this, or asks for one: NULL, or needs_approval with its id.';

-- Operator, whoever asked. Carries out what is approved by now, with the parameters it was asked for with and a reason of
-- their own: the audit has it under their name. Verdicts of what it carries out, and needs_approval where it is not
-- approved (any more).
CREATE OR REPLACE FUNCTION makegood.act_carry_out(
  p_login text, p_token uuid, p_approval_id uuid, p_reason text, p_valid_seconds double precision) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a makegood.acts;
BEGIN
  PERFORM makegood.require_role(p_login, 'operator');
  PERFORM makegood.check_actor(p_login, p_reason);
  SELECT * INTO a FROM makegood.acts AS r
   WHERE r.approval_id = p_approval_id ORDER BY r.acted_at LIMIT 1;
  RETURN CASE a.action
    WHEN 'settle' THEN makegood.act_settle(p_login, p_token, a.details->>'workflow_type', a.subject, a.details->>'step',
      a.details->>'proof', p_reason, 0, p_valid_seconds)
    WHEN 'release group' THEN makegood.act_release_group(p_login, p_token, a.details->'items', p_reason, 0,
      p_valid_seconds)
    ELSE jsonb_build_object('verdict', 'unknown', 'repeated', false) END;
END
$$;
COMMENT ON FUNCTION makegood.act_carry_out(text, uuid, uuid, text, double precision) IS
  'An operator carries out, with the parameters it was asked for with and a reason, what a second person has approved.';

-- Operator. Verdicts of request_cancel: requested, already_requested, compensating, too_late, unknown.
CREATE OR REPLACE FUNCTION makegood.act_cancel(
  p_login text, p_token uuid, p_workflow_type text, p_entity_id text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_result jsonb := makegood.begin_act(p_login, 'operator', p_token, 'cancel', p_entity_id,
    jsonb_build_object('workflow_type', p_workflow_type, 'reason', p_reason));
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  SELECT jsonb_build_object('verdict', c.verdict, 'state', c.current_state)
         || CASE WHEN c.verdict = 'requested' THEN '{}' ELSE makegood.last_act(p_entity_id) END INTO v_result
    FROM makegood.request_cancel(p_workflow_type, p_entity_id, lower(btrim(p_login)), p_reason) c;
  RETURN makegood.end_act(p_token, v_result);
END
$$;
COMMENT ON FUNCTION makegood.act_cancel(text, uuid, text, text, text) IS
  'An operator asks for an order to be undone at its next step border.';

-- Approver, and not the one who asked. Verdicts of give_approval: approved, self, expired, changed, taken, unknown.
-- The digest is of what the approver was shown: something else by that name is not approved.
CREATE OR REPLACE FUNCTION makegood.act_give_approval(
  p_login text, p_token uuid, p_id uuid, p_digest text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_result jsonb := makegood.begin_act(p_login, 'approver', p_token, 'approve', p_id::text,
    jsonb_build_object('digest', p_digest, 'reason', p_reason));
BEGIN
  RETURN coalesce(v_result, makegood.end_act(p_token, jsonb_build_object('verdict',
    makegood.give_approval(p_id, p_digest, lower(btrim(p_login)), p_reason))));
END
$$;
COMMENT ON FUNCTION makegood.act_give_approval(text, uuid, uuid, text, text) IS
  'An approver agrees, as the second person, to what somebody else asked for.';

-- Approver or operator: whoever asked may take it back. Verdicts of refuse_approval: refused, expired, taken, unknown.
CREATE OR REPLACE FUNCTION makegood.act_refuse_approval(p_login text, p_token uuid, p_id uuid, p_reason text)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role text := coalesce((SELECT r FROM makegood.people p, unnest(p.roles) r
    WHERE p.login = lower(btrim(p_login)) AND r IN ('approver', 'operator') ORDER BY r LIMIT 1), 'approver');
  v_result jsonb := makegood.begin_act(p_login, v_role, p_token, 'refuse', p_id::text,
    jsonb_build_object('reason', p_reason));
BEGIN
  RETURN coalesce(v_result, makegood.end_act(p_token, jsonb_build_object('verdict',
    makegood.refuse_approval(p_id, lower(btrim(p_login)), p_reason))));
END
$$;
COMMENT ON FUNCTION makegood.act_refuse_approval(text, uuid, uuid, text) IS
  'An approver or an operator refuses what somebody asked for, or takes it back.';
