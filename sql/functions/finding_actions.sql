-- What becomes of a finding after it was opened, by a remedy or a person; its history is in the same transaction.

-- The guarded write of a finding's state by remedies and people. p_state null: it stays as it is, with a line in its
-- history. A remedy's end moves only a finding that is still its own.
CREATE OR REPLACE FUNCTION makegood.move_finding(
  p_id uuid, p_state text, p_resolution text, p_actor text, p_reason text, p_run_id uuid DEFAULT NULL,
  p_until timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f makegood.reconciliation_findings;
  v_from text[] := CASE WHEN p_state IN ('resolved', 'open') AND p_actor LIKE 'remedy:%' THEN ARRAY['remedying']
                        ELSE ARRAY['open', 'acknowledged', 'ignored'] END;
BEGIN
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = p_id FOR UPDATE;
  IF f.id IS NULL OR f.state <> ALL (v_from) THEN
    RETURN false;
  END IF;
  UPDATE makegood.reconciliation_findings AS u
     SET state = coalesce(p_state, u.state), resolution = p_resolution,
         resolved_at = CASE WHEN p_state = 'resolved' THEN clock_timestamp() END,
         ignored_until = CASE WHEN p_state IS NULL THEN u.ignored_until ELSE p_until END
   WHERE u.id = p_id;
  INSERT INTO makegood.reconciliation_history (finding_id, from_state, to_state, class, changed_by, reason, run_id)
  VALUES (p_id, f.state, coalesce(p_state, f.state), f.class, left(btrim(p_actor), 200), left(btrim(p_reason), 2000), p_run_id);
  RETURN true;
END
$$;
COMMENT ON FUNCTION makegood.move_finding(uuid, text, text, text, text, uuid, timestamptz) IS
  'Changes a finding''s state with its history, where the state it is in allows it; true when it did.';

-- A person has seen it and takes it on, or does not want to hear of it until then. What waits for an approval is dropped;
-- what is being put right is left alone.
-- Verdicts: acknowledged or ignored, busy (it is being put right), closed, unknown.
CREATE OR REPLACE FUNCTION makegood.mark_finding(
  p_id uuid, p_state text, p_until timestamptz, p_actor text, p_reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f makegood.reconciliation_findings;
  o makegood.reconciliation_remedies;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  IF p_state NOT IN ('acknowledged', 'ignored') OR (p_state = 'ignored') <> (p_until IS NOT NULL)
     OR p_until <= clock_timestamp() OR p_until > clock_timestamp() + interval '1 year' THEN
    RAISE EXCEPTION 'a finding is ignored until a time within the next year, not %', p_until USING ERRCODE = 'MG011';
  END IF;
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = p_id FOR UPDATE;
  IF f.id IS NULL OR f.state IN ('remedying', 'resolved') THEN
    RETURN CASE WHEN f.id IS NULL THEN 'unknown' WHEN f.state = 'resolved' THEN 'closed' ELSE 'busy' END;
  END IF;
  PERFORM makegood.move_finding(p_id, p_state, NULL, p_actor, p_reason, NULL, p_until);
  UPDATE makegood.reconciliation_findings AS u SET note = left(btrim(p_reason), 2000) WHERE u.id = p_id;
  IF p_state = 'ignored' THEN
    SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.finding_id = p_id
       AND r.state IN ('proposed', 'awaiting_approval', 'approved') FOR UPDATE;
    IF o.id IS NOT NULL THEN
      PERFORM makegood.drop_remedy(o, p_actor, 'the finding is ignored');
    END IF;
  END IF;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), CASE p_state WHEN 'ignored' THEN 'ignore finding' ELSE 'acknowledge finding' END, p_id::text,
          left(btrim(p_reason), 2000), jsonb_build_object('class', f.class, 'unit', f.unit, 'state', f.state, 'until', p_until,
          'amount_minor', f.amount_at_risk_minor, 'currency', f.currency));
  RETURN p_state;
END
$$;
COMMENT ON FUNCTION makegood.mark_finding(uuid, text, timestamptz, text, text) IS
  'A person acknowledges a finding, or ignores it until a time, with who and why; acknowledged, ignored, busy, closed or unknown.';

CREATE OR REPLACE FUNCTION makegood.acknowledge_finding(p_id uuid, p_actor text, p_reason text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT makegood.mark_finding(p_id, 'acknowledged', NULL, p_actor, p_reason)
$$;
COMMENT ON FUNCTION makegood.acknowledge_finding(uuid, text, text) IS
  'A person has seen a finding and takes it on; acknowledged, busy, closed or unknown.';

CREATE OR REPLACE FUNCTION makegood.ignore_finding(p_id uuid, p_actor text, p_reason text, p_until timestamptz) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT makegood.mark_finding(p_id, 'ignored', p_until, p_actor, p_reason)
$$;
COMMENT ON FUNCTION makegood.ignore_finding(uuid, text, text, timestamptz) IS
  'Nobody wants to hear of a finding until then; ignored, busy, closed or unknown.';

-- A second person allows the refund that a finding waits with: exactly the class, charge and amount as they are now.
-- Verdicts: approved, self, expired, changed, taken, nothing (no refund waits for anybody), unknown.
CREATE OR REPLACE FUNCTION makegood.approve_remedy(p_finding_id uuid, p_actor text, p_reason text)
RETURNS TABLE (verdict text, remedy_id uuid, amount_minor bigint, currency text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f makegood.reconciliation_findings;
  o makegood.reconciliation_remedies;
  v_verdict text;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = p_finding_id FOR UPDATE;
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.finding_id = f.id
     AND r.state IN ('awaiting_approval', 'approved') FOR UPDATE;
  v_verdict := CASE WHEN f.id IS NULL THEN 'unknown' WHEN o.id IS NULL THEN 'nothing' WHEN o.state = 'approved' THEN 'taken'
                    ELSE makegood.give_approval(o.approval_id, makegood.remedy_digest(
                      f.class, f.charge_id, makegood.remedy_amount(f), f.currency), p_actor, p_reason) END;
  IF v_verdict = 'approved' THEN
    UPDATE makegood.reconciliation_remedies AS r SET state = 'approved' WHERE r.id = o.id AND r.state = 'awaiting_approval';
  END IF;
  RETURN QUERY SELECT v_verdict, o.id, o.amount_minor, o.currency;
END
$$;
COMMENT ON FUNCTION makegood.approve_remedy(uuid, text, text) IS
  'A second person allows the refund of a finding as it is now; approved, self, expired, changed, taken, nothing or unknown.';

-- Verdicts: refused, nothing, unknown.
CREATE OR REPLACE FUNCTION makegood.refuse_remedy(p_finding_id uuid, p_actor text, p_reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f makegood.reconciliation_findings;
  o makegood.reconciliation_remedies;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = p_finding_id FOR UPDATE;
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.finding_id = f.id
     AND r.state IN ('proposed', 'awaiting_approval', 'approved') FOR UPDATE;
  IF f.id IS NULL OR o.id IS NULL THEN
    RETURN CASE WHEN f.id IS NULL THEN 'unknown' ELSE 'nothing' END;
  END IF;
  PERFORM makegood.drop_remedy(o, p_actor, p_reason);
  -- Or the next run asks again: whoever refuses takes it on.
  PERFORM makegood.move_finding(f.id, 'acknowledged', NULL, p_actor, format('refund refused: %s', p_reason));
  RETURN 'refused';
END
$$;
COMMENT ON FUNCTION makegood.refuse_remedy(uuid, text, text) IS
  'Refuses the refund that a finding waits with, and takes the finding on; refused, nothing or unknown.';
