-- What people do about findings through the dashboard, as in act.sql: the role is read in the transaction that acts, a
-- form that is sent twice acts once, and the functions are those of the command line.

-- Operator. Verdicts of mark_finding: acknowledged, ignored, busy (it is being put right), closed, unknown. p_days: for
-- how long nobody wants to hear of it; null acknowledges.
CREATE OR REPLACE FUNCTION makegood.act_mark_finding(
  p_login text, p_token uuid, p_finding_id uuid, p_days integer, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_result jsonb := makegood.begin_act(p_login, 'operator', p_token,
    CASE WHEN p_days IS NULL THEN 'acknowledge finding' ELSE 'ignore finding' END, p_finding_id::text,
    jsonb_build_object('days', p_days, 'reason', p_reason));
  v_verdict text;
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  v_verdict := CASE WHEN p_days IS NULL
    THEN makegood.acknowledge_finding(p_finding_id, lower(btrim(p_login)), p_reason)
    ELSE makegood.ignore_finding(p_finding_id, lower(btrim(p_login)), p_reason,
      clock_timestamp() + make_interval(days => p_days)) END;
  RETURN makegood.end_act(p_token, jsonb_build_object('verdict', v_verdict));
END
$$;
COMMENT ON FUNCTION makegood.act_mark_finding(text, uuid, uuid, integer, text) IS
  'An operator takes a finding on, or has it ignored for some days.';

-- Approver, and not the one who asked. Verdicts of approve_remedy: approved, self, expired, changed, taken, nothing,
-- unknown. The digest is of what the approver was shown: a refund of something else is not approved.
CREATE OR REPLACE FUNCTION makegood.act_approve_remedy(
  p_login text, p_token uuid, p_finding_id uuid, p_digest text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_result jsonb := makegood.begin_act(p_login, 'approver', p_token, 'approve refund', p_finding_id::text,
    jsonb_build_object('digest', p_digest, 'reason', p_reason));
  v_digest text;
BEGIN
  IF v_result IS NOT NULL THEN
    RETURN v_result;
  END IF;
  -- The finding first, as everybody who decides about its refund does; then its refund cannot become another one.
  PERFORM FROM makegood.reconciliation_findings f WHERE f.id = p_finding_id FOR UPDATE;
  SELECT r.digest INTO v_digest FROM makegood.reconciliation_remedies r
   WHERE r.finding_id = p_finding_id AND r.state IN ('awaiting_approval', 'approved');
  v_result := CASE WHEN v_digest <> p_digest THEN jsonb_build_object('verdict', 'changed')
    ELSE (SELECT jsonb_build_object('verdict', a.verdict)
            FROM makegood.approve_remedy(p_finding_id, lower(btrim(p_login)), p_reason) a) END;
  RETURN makegood.end_act(p_token, v_result);
END
$$;
COMMENT ON FUNCTION makegood.act_approve_remedy(text, uuid, uuid, text, text) IS
  'An approver agrees, as the second person, to the refund that a finding waits with.';

-- Approver or operator. Verdicts of refuse_remedy: refused, nothing, unknown.
CREATE OR REPLACE FUNCTION makegood.act_refuse_remedy(p_login text, p_token uuid, p_finding_id uuid, p_reason text)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role text := coalesce((SELECT r FROM makegood.people p, unnest(p.roles) r
    WHERE p.login = lower(btrim(p_login)) AND r IN ('approver', 'operator') ORDER BY r LIMIT 1), 'approver');
  v_result jsonb := makegood.begin_act(p_login, v_role, p_token, 'refuse refund', p_finding_id::text,
    jsonb_build_object('reason', p_reason));
BEGIN
  RETURN coalesce(v_result, makegood.end_act(p_token, jsonb_build_object('verdict',
    makegood.refuse_remedy(p_finding_id, lower(btrim(p_login)), p_reason))));
END
$$;
COMMENT ON FUNCTION makegood.act_refuse_remedy(text, uuid, uuid, text) IS
  'An approver or an operator refuses the refund that a finding waits with, and the finding is acknowledged.';
