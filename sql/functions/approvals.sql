-- Something that needs two people: one asks and shows what is to be done (its digest stands for all of it), another
-- allows exactly that, and it is done once, before its time is over. Each change has its line in operator_actions in the
-- same transaction. Whoever comes at once meets on the row's lock: the second sees what the first did.

-- Verdicts: requested, existing (the same is asked for already, or approved and not used yet).
CREATE OR REPLACE FUNCTION makegood.request_approval(
  p_action text, p_subject text, p_digest text, p_amount_minor bigint, p_currency text, p_actor text, p_reason text,
  p_valid_seconds double precision)
RETURNS TABLE (verdict text, id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_id uuid;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  IF p_valid_seconds IS NULL OR NOT p_valid_seconds BETWEEN 1 AND 30 * 86400 THEN
    RAISE EXCEPTION 'an approval is valid for 1 second to 30 days, not % s', p_valid_seconds USING ERRCODE = 'MG011';
  END IF;
  -- Again where the one that was in the way ended between our two looks; each time somebody else got on.
  FOR v_try IN 1..10 LOOP
    -- One whose time is over makes room for a new one.
    UPDATE makegood.approvals AS a SET state = 'expired'
     WHERE a.action = p_action AND a.subject = p_subject AND a.digest = p_digest
       AND a.state IN ('requested', 'approved') AND a.expires_at <= clock_timestamp();
    INSERT INTO makegood.approvals AS a (
      id, action, subject, digest, amount_minor, currency, requested_by, requested_at, reason, expires_at)
    VALUES (makegood.new_id(), p_action, p_subject, p_digest, p_amount_minor, p_currency, btrim(p_actor), t,
            left(btrim(p_reason), 2000), t + make_interval(secs => p_valid_seconds))
    ON CONFLICT (action, subject, digest) WHERE state IN ('requested', 'approved') DO NOTHING
    RETURNING a.id INTO v_id;
    IF v_id IS NOT NULL THEN
      PERFORM makegood.announce_approval(v_id);
      RETURN QUERY SELECT 'requested', v_id;
      RETURN;
    END IF;
    SELECT a.id INTO v_id FROM makegood.approvals a
     WHERE a.action = p_action AND a.subject = p_subject AND a.digest = p_digest AND a.state IN ('requested', 'approved');
    IF FOUND THEN
      RETURN QUERY SELECT 'existing', v_id;
      RETURN;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'somebody else keeps asking for % of %', p_action, p_subject USING ERRCODE = 'serialization_failure';
END
$$;
COMMENT ON FUNCTION makegood.request_approval(text, text, text, bigint, text, text, text, double precision) IS
  'Asks for a second person''s approval of what the digest stands for; requested, or existing with the id of the same request.';

-- The audit line of a request, and the alert that tells a second person of it.
CREATE OR REPLACE FUNCTION makegood.announce_approval(p_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  SELECT a.requested_by, 'request approval', a.subject, a.reason, jsonb_build_object(
           'approval_id', a.id, 'action', a.action, 'digest', a.digest, 'amount_minor', a.amount_minor,
           'currency', a.currency, 'expires_at', a.expires_at)
    FROM makegood.approvals a WHERE a.id = p_id;
  INSERT INTO makegood.outbox (topic, key, payload)
  SELECT 'alert', format('approval-%s', a.id), jsonb_build_object(
           'kind', 'approval_requested', 'entity_id', a.subject, 'workflow_type', a.action, 'step', 'approval',
           'amount_minor', a.amount_minor, 'currency', a.currency, 'error_type', 'waits for a second person',
           'error', format('asked for by %s: %s', a.requested_by, left(a.reason, 1000)))
    FROM makegood.approvals a WHERE a.id = p_id
  ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION makegood.announce_approval(uuid) IS 'Writes the audit line of a request for approval, and its alert.';

-- Verdicts: approved, self (the asker cannot), expired, changed (it is not what was shown), taken (somebody approved,
-- refused or used it already), unknown.
CREATE OR REPLACE FUNCTION makegood.give_approval(p_id uuid, p_digest text, p_actor text, p_reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz;
  a makegood.approvals;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  SELECT * INTO a FROM makegood.approvals AS r WHERE r.id = p_id FOR UPDATE;
  t := clock_timestamp();
  v_verdict := CASE WHEN a.id IS NULL THEN 'unknown'
                    WHEN a.digest IS DISTINCT FROM p_digest THEN 'changed'
                    WHEN a.state = 'expired' OR (a.state = 'requested' AND a.expires_at <= t) THEN 'expired'
                    WHEN a.state <> 'requested' THEN 'taken'
                    WHEN lower(btrim(a.requested_by)) = lower(btrim(p_actor)) THEN 'self' ELSE 'approved' END;
  IF v_verdict = 'expired' AND a.state = 'requested' THEN
    UPDATE makegood.approvals AS u SET state = 'expired' WHERE u.id = a.id;
  ELSIF v_verdict = 'approved' THEN
    UPDATE makegood.approvals AS u
       SET state = 'approved', approved_by = btrim(p_actor), approved_at = t, approval_reason = left(btrim(p_reason), 2000)
     WHERE u.id = a.id;
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (btrim(p_actor), 'approve', a.subject, left(btrim(p_reason), 2000), jsonb_build_object(
            'approval_id', a.id, 'action', a.action, 'digest', a.digest, 'amount_minor', a.amount_minor,
            'currency', a.currency, 'requested_by', a.requested_by));
  END IF;
  RETURN v_verdict;
END
$$;
COMMENT ON FUNCTION makegood.give_approval(uuid, text, text, text) IS
  'A second person allows exactly what was shown; approved, self, expired, changed, taken or unknown.';

-- Anybody may refuse, the asker too, as long as it was not used.
-- Verdicts: refused, expired, taken (it was refused or used already), unknown.
CREATE OR REPLACE FUNCTION makegood.refuse_approval(p_id uuid, p_actor text, p_reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a makegood.approvals;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  SELECT * INTO a FROM makegood.approvals AS r WHERE r.id = p_id FOR UPDATE;
  v_verdict := CASE WHEN a.id IS NULL THEN 'unknown' WHEN a.state = 'expired' THEN 'expired'
                    WHEN a.state NOT IN ('requested', 'approved') THEN 'taken' ELSE 'refused' END;
  IF v_verdict = 'refused' THEN
    UPDATE makegood.approvals AS u
       SET state = 'refused', refused_by = btrim(p_actor), refused_at = clock_timestamp(),
           refusal_reason = left(btrim(p_reason), 2000)
     WHERE u.id = a.id;
    INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
    VALUES (btrim(p_actor), 'refuse approval', a.subject, left(btrim(p_reason), 2000), jsonb_build_object(
            'approval_id', a.id, 'action', a.action, 'digest', a.digest, 'state', a.state,
            'requested_by', a.requested_by));
  END IF;
  RETURN v_verdict;
END
$$;
COMMENT ON FUNCTION makegood.refuse_approval(uuid, text, text) IS
  'Refuses a request, or takes back an approval that was not used; refused, expired, taken or unknown.';

-- Consumes an approval in the transaction of the caller, with what it allows: both happen, or neither. True once.
CREATE OR REPLACE FUNCTION makegood.use_approval(p_action text, p_subject text, p_digest text, p_actor text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a makegood.approvals;
BEGIN
  -- The lock first and the clock after it: time may have passed while we waited.
  SELECT * INTO a FROM makegood.approvals AS r
   WHERE r.action = p_action AND r.subject = p_subject AND r.digest = p_digest AND r.state = 'approved' FOR UPDATE;
  IF a.id IS NULL OR a.expires_at <= clock_timestamp() THEN
    RETURN false;
  END IF;
  UPDATE makegood.approvals AS u SET state = 'used', used_by = btrim(p_actor), used_at = clock_timestamp()
   WHERE u.id = a.id;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), 'use approval', a.subject, a.approval_reason, jsonb_build_object(
          'approval_id', a.id, 'action', a.action, 'digest', a.digest, 'amount_minor', a.amount_minor,
          'currency', a.currency, 'requested_by', a.requested_by, 'approved_by', a.approved_by));
  RETURN true;
END
$$;
COMMENT ON FUNCTION makegood.use_approval(text, text, text, text) IS
  'Consumes an approval that was given and has not expired, in the caller''s transaction; true once.';
