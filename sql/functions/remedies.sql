-- Remedies: from a finding to what is done about it. Money goes back through the saga engine only, as a workflow of the
-- type `remedy`; all that happens here is one transaction each, so that dying anywhere leaves all of it or nothing.

-- Carries out the remedy of one finding, as far as SQL can: starts its refund, asks for a second person, or corrects,
-- resumes or stops at once. Everything that may be in its way is asked under the finding's lock.
-- Verdicts: started (drive workflow_id), awaiting_approval, corrected, recorded, resumed (drive workflow_id), stopped_order,
-- dry_run, left (for a person or for time), busy, unknown, or an obstacle of remedy_limits.sql.
CREATE OR REPLACE FUNCTION makegood.carry_out_remedy(p_finding_id uuid, p_run_id uuid, p_terms jsonb, p_actor text)
RETURNS TABLE (verdict text, reason text, remedy_id uuid, workflow_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f makegood.reconciliation_findings;
  o makegood.reconciliation_remedies;
  v record;
BEGIN
  PERFORM makegood.check_actor(p_actor, 'remedy');
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = p_finding_id FOR UPDATE;
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.finding_id = f.id
     AND r.state IN ('proposed', 'awaiting_approval', 'approved', 'started') FOR UPDATE;
  IF f.id IS NULL THEN
    RETURN QUERY SELECT 'unknown', 'there is no such finding', NULL::uuid, NULL::uuid;
    RETURN;
  END IF;
  IF f.remedy IN ('human', 'wait') THEN
    RETURN QUERY SELECT 'left', CASE f.remedy WHEN 'wait' THEN 'its workflow is under way' ELSE 'a person decides' END, NULL::uuid, NULL::uuid;
    RETURN;
  END IF;
  -- What a person has taken on is theirs, unless it was approved.
  IF f.state <> 'open' AND NOT (f.state = 'acknowledged' AND o.state IS NOT DISTINCT FROM 'approved') OR o.state = 'started' THEN
    RETURN QUERY SELECT 'busy', format('the finding is %s', f.state), o.id, o.workflow_id;
    RETURN;
  END IF;
  -- Read until our commit: whoever throws the switch waits for us, or we see it thrown.
  PERFORM FROM makegood.remedy_switch FOR SHARE;
  SELECT q.obstacle, q.reason INTO v FROM makegood.find_run_obstacle(p_run_id, p_terms) AS q;
  IF v.obstacle IS NULL THEN
    SELECT q.obstacle, q.reason INTO v FROM makegood.find_obstacle(f, p_terms) AS q;
  END IF;
  IF v.obstacle IS NULL AND o.state IS DISTINCT FROM 'approved' THEN
    SELECT q.obstacle, q.reason INTO v FROM makegood.find_flood(f, p_terms) AS q;
  END IF;
  IF v.obstacle IS NULL AND coalesce((SELECT p.dry_run FROM makegood.remedy_policy p
       WHERE p.environment = makegood.environment_of(p_terms) AND p.class = f.class), true) THEN
    SELECT 'dry_run' AS obstacle, format('%s is only told about in %s', f.class, makegood.environment_of(p_terms)) AS reason INTO v;
  END IF;
  IF v.obstacle IS NOT NULL THEN
    RETURN QUERY SELECT v.obstacle, v.reason, NULL::uuid, NULL::uuid;
  ELSIF f.remedy IN ('refund', 'retry_refund') THEN
    RETURN QUERY SELECT * FROM makegood.start_refund(f, o, p_run_id, p_terms, p_actor);
  ELSE
    RETURN QUERY SELECT * FROM makegood.apply_remedy(f, p_run_id, p_terms, p_actor);
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.carry_out_remedy(uuid, uuid, jsonb, text) IS
  'Does what may be done about one finding, in one transaction, and says what was done or what is in the way.';

-- A refund within the caps is started; one above the cap of an item waits for a second person. Under the finding's lock.
CREATE OR REPLACE FUNCTION makegood.start_refund(
  f makegood.reconciliation_findings, o makegood.reconciliation_remedies, p_run_id uuid, p_terms jsonb, p_actor text)
RETURNS TABLE (verdict text, reason text, remedy_id uuid, workflow_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_environment text := makegood.environment_of(p_terms);
  v_amount bigint := makegood.remedy_amount(f);
  v_digest text := makegood.remedy_digest(f.class, f.charge_id, v_amount, f.currency);
  v_cap record;
  v_approval uuid;
  v_approved boolean := false;
BEGIN
  IF o.id IS NOT NULL AND o.digest <> v_digest THEN
    PERFORM makegood.drop_remedy(o, p_actor, 'what was proposed has changed');
    o := NULL;
  END IF;
  IF o.state = 'approved' THEN
    v_approved := makegood.use_approval('refund', f.id::text, v_digest, p_actor);
    IF NOT v_approved THEN
      PERFORM makegood.drop_remedy(o, p_actor, 'its approval has expired or was taken back');
      o := NULL;
    END IF;
  END IF;
  PERFORM makegood.lock_remedy_caps(v_environment, f.currency);
  SELECT q.obstacle, q.reason INTO v_cap
    FROM makegood.find_cap(v_environment, f.currency, v_amount, f.customer_ref, p_run_id) AS q;
  IF v_cap.obstacle IS NOT NULL AND v_cap.obstacle <> 'above_item' AND NOT v_approved THEN
    RETURN QUERY SELECT v_cap.obstacle, v_cap.reason, o.id, NULL::uuid;
    RETURN;
  END IF;
  IF o.id IS NULL THEN
    o := makegood.propose_remedy(f, p_run_id, v_environment, v_amount, v_digest, p_actor);
  END IF;
  IF v_cap.obstacle = 'above_item' AND NOT v_approved THEN
    SELECT q.id INTO v_approval FROM makegood.request_approval('refund', f.id::text, v_digest, v_amount, f.currency,
      p_actor, format('%s: %s', f.class, v_cap.reason), (p_terms->>'approval_seconds')::double precision) AS q;
    UPDATE makegood.reconciliation_remedies AS r SET state = 'awaiting_approval', approval_id = v_approval
     WHERE r.id = o.id AND r.state = 'proposed';
    -- Its request has run out, and here is a new one.
    UPDATE makegood.reconciliation_remedies AS r SET approval_id = v_approval
     WHERE r.id = o.id AND r.state = 'awaiting_approval' AND r.approval_id <> v_approval;
    RETURN QUERY SELECT 'awaiting_approval', v_cap.reason, o.id, NULL::uuid;
    RETURN;
  END IF;
  RETURN QUERY SELECT 'started', CASE WHEN v_approved THEN 'approved by a second person' ELSE 'within the caps' END, o.id,
                      makegood.begin_refund(f, o, p_run_id, p_actor);
END
$$;
COMMENT ON FUNCTION makegood.start_refund(makegood.reconciliation_findings, makegood.reconciliation_remedies, uuid, jsonb, text) IS
  'Starts the refund of a finding within the caps or with an approval, or asks for one. Called under the finding''s lock.';

-- The proposal's row. The sequence follows the ones before, all of which moved nothing or show in the provider's books.
CREATE OR REPLACE FUNCTION makegood.propose_remedy(
  f makegood.reconciliation_findings, p_run_id uuid, p_environment text, p_amount_minor bigint, p_digest text, p_actor text)
RETURNS makegood.reconciliation_remedies
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o makegood.reconciliation_remedies;
  v_name text := CASE WHEN f.remedy NOT IN ('refund', 'retry_refund') THEN f.id::text
                      WHEN length(f.charge_id) <= 120 THEN f.charge_id
                      ELSE encode(sha256(convert_to(f.charge_id, 'UTF8')), 'hex') END;
  v_sequence integer := 1 + coalesce(CASE WHEN f.remedy IN ('refund', 'retry_refund')
    THEN (SELECT max(r.sequence) FROM makegood.reconciliation_remedies r
           WHERE r.charge_id = f.charge_id AND r.class = f.class AND r.remedy IN ('refund', 'retry_refund'))
    ELSE (SELECT max(r.sequence) FROM makegood.reconciliation_remedies r
           WHERE r.finding_id = f.id AND r.remedy NOT IN ('refund', 'retry_refund')) END, 0);
BEGIN
  INSERT INTO makegood.reconciliation_remedies AS r (
    id, finding_id, run_id, environment, class, remedy, order_id, charge_id, customer_ref, amount_minor, currency,
    sequence, entity_id, digest, proposed_by, proposed_at)
  VALUES (makegood.new_id(), f.id, p_run_id, p_environment, f.class, f.remedy, f.order_id, f.charge_id, f.customer_ref,
          p_amount_minor, f.currency, v_sequence, format('remedy:%s:%s:%s', v_name, f.class, v_sequence), p_digest,
          btrim(p_actor), clock_timestamp())
  RETURNING * INTO o;
  RETURN o;
END
$$;
COMMENT ON FUNCTION makegood.propose_remedy(makegood.reconciliation_findings, uuid, text, bigint, text, text) IS
  'Writes down a remedy that is proposed, with its operation key; returns its row.';

-- Row, workflow, finding, history and audit line, together.
CREATE OR REPLACE FUNCTION makegood.begin_refund(
  f makegood.reconciliation_findings, o makegood.reconciliation_remedies, p_run_id uuid, p_actor text)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id uuid := makegood.start_workflow('remedy', o.entity_id, jsonb_build_object(
    'remedy_id', o.id, 'finding_id', f.id, 'class', f.class, 'charge_id', f.charge_id, 'order_id', f.order_id,
    'livemode', o.environment = 'live',
    -- What the verdict knows of: where the charge says otherwise, somebody refunds it as well.
    'refunded_minor', (SELECT coalesce(sum(q.amount_minor), 0)::bigint FROM makegood.provider_refunds q
                        WHERE q.charge_id = f.charge_id AND q.status IN ('succeeded', 'pending')),
    -- A dispute of any of these may give the same money back. The latest, and no more than a check can ask about.
    'other_charges', (SELECT coalesce(jsonb_agg(q.id ORDER BY q.id), '[]')
                        FROM (SELECT k.id FROM makegood.provider_charges c JOIN makegood.provider_charges k
                                  ON k.provider = c.provider AND k.livemode = c.livemode AND k.captured_minor > 0
                                 AND k.id <> c.id AND k.id = ANY (makegood.charges_of(f))
                               WHERE c.id = f.charge_id ORDER BY k.created_at DESC, k.id LIMIT 10) AS q),
    -- D19: the undo whose refund is missing. It is looked for once more before another one is made.
    'compensation_id', (SELECT c.id FROM makegood.compensations c JOIN makegood.workflow_executions e ON e.id = c.workflow_id
                         WHERE f.class = 'D19' AND e.entity_id = f.order_id AND c.step = 'charge' LIMIT 1)),
    o.amount_minor, o.currency, btrim(p_actor));
BEGIN
  UPDATE makegood.reconciliation_remedies AS r
     SET state = 'started', started_at = clock_timestamp(), workflow_id = v_id, run_id = p_run_id
   WHERE r.id = o.id AND r.state IN ('proposed', 'approved');
  PERFORM makegood.move_finding(f.id, 'remedying', NULL, p_actor, format('remedy %s', o.entity_id), p_run_id);
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), 'remedy: ' || o.remedy, o.entity_id, format('finding %s (%s)', f.id, f.class), jsonb_build_object(
          'remedy_id', o.id, 'finding_id', f.id, 'run_id', p_run_id, 'class', f.class, 'charge_id', f.charge_id,
          'order_id', f.order_id, 'amount_minor', o.amount_minor, 'currency', o.currency, 'approval_id', o.approval_id,
          'workflow_id', v_id));
  RETURN v_id;
END
$$;
COMMENT ON FUNCTION makegood.begin_refund(makegood.reconciliation_findings, makegood.reconciliation_remedies, uuid, text) IS
  'Starts the workflow of a remedy, with its finding and audit line in the same transaction; returns its id.';

-- A proposal that nobody will carry out, and its request.
CREATE OR REPLACE FUNCTION makegood.drop_remedy(o makegood.reconciliation_remedies, p_actor text, p_reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF o.approval_id IS NOT NULL THEN
    PERFORM makegood.refuse_approval(o.approval_id, p_actor, p_reason);
  END IF;
  UPDATE makegood.reconciliation_remedies AS r
     SET state = 'refused', finished_at = clock_timestamp(), reason = left(btrim(p_reason), 2000)
   WHERE r.id = o.id AND r.state IN ('proposed', 'awaiting_approval', 'approved');
END
$$;
COMMENT ON FUNCTION makegood.drop_remedy(makegood.reconciliation_remedies, text, text) IS
  'Refuses a remedy that was not started, and its request for approval.';

-- Asked by the remedy itself, between the verdict and the money: do we still want it? One row, verdict `go` or what is
-- in the way.
CREATE OR REPLACE FUNCTION makegood.recheck_remedy(p_entity_id text, p_terms jsonb)
RETURNS TABLE (verdict text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o makegood.reconciliation_remedies;
  f makegood.reconciliation_findings;
  s makegood.remedy_switch;
BEGIN
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.entity_id = p_entity_id;
  SELECT * INTO f FROM makegood.reconciliation_findings q WHERE q.id = o.finding_id;
  SELECT * INTO s FROM makegood.remedy_switch;
  IF o.state IS DISTINCT FROM 'started' THEN
    RETURN QUERY SELECT 'ended', format('the remedy is %s', coalesce(o.state, 'not known'));
  ELSIF s.stopped THEN
    RETURN QUERY SELECT 'stopped', format('remedies are stopped by %s: %s', s.changed_by, s.reason);
  ELSIF f.state <> 'remedying' THEN
    RETURN QUERY SELECT 'closed', format('the finding is %s', f.state);
  ELSIF makegood.remedy_digest(f.class, f.charge_id, makegood.remedy_amount(f), f.currency) <> o.digest THEN
    RETURN QUERY SELECT 'changed', 'the finding says something else now';
  ELSE
    RETURN QUERY SELECT q.obstacle, q.reason FROM makegood.find_obstacle(f, p_terms, o.id) AS q;
    IF NOT FOUND THEN
      RETURN QUERY SELECT 'go', 'the finding stands';
    END IF;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.recheck_remedy(text, jsonb) IS
  'Whether a remedy under way is still wanted: go, or what is in the way.';

-- The end of a remedy, with its workflow's: called by the trigger on workflows, in the transaction that ends it. The
-- answer of the refund decides, not the state: a cancel that came while it was on the wire did not take it back.
CREATE OR REPLACE FUNCTION makegood.settle_remedy(p_entity_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  e makegood.workflow_executions;
  o makegood.reconciliation_remedies;
  v_facts jsonb;
  v_reason text;
BEGIN
  SELECT * INTO e FROM makegood.workflow_executions q WHERE q.workflow_type = 'remedy' AND q.entity_id = p_entity_id;
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.entity_id = p_entity_id FOR UPDATE;
  IF o.state IS DISTINCT FROM 'started' OR e.finished_at IS NULL THEN
    RETURN;
  END IF;
  IF e.context ? 'refund' THEN
    UPDATE makegood.reconciliation_remedies AS r
       SET state = 'succeeded', finished_at = clock_timestamp(), refund_ref = e.context #>> '{refund,refund}',
           books_due = o.class = 'D03' AND o.order_id IS NOT NULL
     WHERE r.id = o.id;
    PERFORM makegood.move_finding(o.finding_id, 'resolved', 'remedied', p_entity_id,
      format('refunded %s %s: %s', o.amount_minor, o.currency, e.context #>> '{refund,refund}'), o.run_id);
    PERFORM makegood.tell_books(o.id);
    RETURN;
  END IF;
  SELECT t.metadata INTO v_facts FROM makegood.workflow_transitions t
   WHERE t.workflow_id = e.id AND t.to_state IN ('failed', 'compensating') ORDER BY t.seq LIMIT 1;
  v_reason := left(coalesce(v_facts->>'error', v_facts->>'cancel_reason', v_facts->>'reason', e.current_state), 2000);
  UPDATE makegood.reconciliation_remedies AS r
     SET state = CASE WHEN v_facts->>'failed_step' = 'refund' THEN 'failed' ELSE 'refused' END,
         finished_at = clock_timestamp(), reason = v_reason
   WHERE r.id = o.id;
  PERFORM makegood.move_finding(o.finding_id, 'open', NULL, p_entity_id, format('not refunded: %s', v_reason), o.run_id);
END
$$;
COMMENT ON FUNCTION makegood.settle_remedy(text) IS
  'Ends a remedy and its finding with the workflow that carried it out; a second time nothing.';

-- What our books should say was refunded: not what they say and this one besides, for their owner may have heard of it
-- from the provider. What only gave back what was taken too much is no refund of the order, as in the rules; and what
-- our books say beyond it is not for a job to take away.
CREATE OR REPLACE FUNCTION makegood.refunded_of_order(o makegood.reconciliation_remedies) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest(q.refunded_minor, s.refunded_minor - greatest(s.captured_minor - q.amount_minor, 0))::bigint
    FROM makegood.reconcilable_orders q
   CROSS JOIN LATERAL (
     SELECT coalesce(sum(c.captured_minor), 0) AS captured_minor,
            coalesce(sum(r.refunded_minor), 0)
            -- This one may not have shown there yet.
            + CASE WHEN EXISTS (SELECT FROM makegood.provider_refunds d WHERE d.id = o.refund_ref) THEN 0
                   ELSE o.amount_minor END AS refunded_minor
       FROM makegood.provider_charges c
      CROSS JOIN LATERAL (SELECT sum(d.amount_minor) AS refunded_minor FROM makegood.provider_refunds d
                           WHERE d.charge_id = c.id AND d.status IN ('succeeded', 'pending')) AS r
      WHERE (c.order_ref = q.order_id OR c.payment_ref = q.payment_ref OR c.id = q.payment_ref)
        AND c.status = 'succeeded' AND c.currency = q.currency AND c.livemode = (o.environment = 'live')) AS s
   WHERE q.order_id = o.order_id LIMIT 1
$$;
COMMENT ON FUNCTION makegood.refunded_of_order(makegood.reconciliation_remedies) IS
  'How much of a remedy''s order was refunded, its own refund with it, as the provider''s books have it.';

-- Our own books learn of a refund: once, in the transaction that ends it or, where their owner's function failed then,
-- when a later run asks again. A team's function that fails must not lose the refund's answer.
CREATE OR REPLACE FUNCTION makegood.tell_books(p_remedy_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o makegood.reconciliation_remedies;
BEGIN
  SELECT * INTO o FROM makegood.reconciliation_remedies r WHERE r.id = p_remedy_id AND r.books_due FOR UPDATE;
  IF o.id IS NULL THEN
    RETURN false;
  END IF;
  BEGIN
    IF NOT makegood.correct_order(o.order_id, NULL, makegood.refunded_of_order(o), NULL, NULL) THEN
      RAISE EXCEPTION 'order % cannot be corrected from here', o.order_id USING ERRCODE = 'MG011';
    END IF;
  EXCEPTION WHEN OTHERS THEN
    UPDATE makegood.reconciliation_remedies AS r SET reason = left('our books were not told: ' || sqlerrm, 2000)
     WHERE r.id = o.id;
    RETURN false;
  END;
  UPDATE makegood.reconciliation_remedies AS r SET books_due = false, reason = NULL WHERE r.id = o.id;
  RETURN true;
END
$$;
COMMENT ON FUNCTION makegood.tell_books(uuid) IS 'Records a refund in our books, once; false when there was nothing to tell or they refused.';

CREATE OR REPLACE FUNCTION makegood.tell_books_again(p_limit integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FILTER (WHERE makegood.tell_books(d.id))
    FROM (SELECT r.id FROM makegood.reconciliation_remedies r WHERE r.books_due ORDER BY r.finished_at LIMIT p_limit) AS d
$$;
COMMENT ON FUNCTION makegood.tell_books_again(integer) IS 'Tries again to tell our books of refunds that they could not be told of; how many now know.';

-- What a run could do, with what is in the way of each: everything a decision needs. Reads only. A page at a time
-- (p_after: the last finding of the page before), so that what is in the way of the oldest is in nobody else's.
-- The run of one window is about that window: it does nothing about what it has not looked at.
CREATE OR REPLACE FUNCTION makegood.list_remedies(
  p_run_id uuid, p_terms jsonb, p_classes text[], p_limit integer, p_after uuid DEFAULT NULL)
RETURNS TABLE (finding_id uuid, class text, unit text, order_id text, charge_id text, currency text, remedy text,
               finding_state text, amount_minor bigint, dry_run boolean, approval text, obstacle text, reason text,
               cap text, cap_reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_only uuid := (SELECT r.id FROM makegood.reconciliation_runs r WHERE r.id = p_run_id AND r.kind = 'window');
BEGIN
  RETURN QUERY
  SELECT f.id, f.class, f.unit, f.order_id, f.charge_id, f.currency, f.remedy, f.state, a.amount_minor,
         coalesce(p.dry_run, true), o.state, coalesce(w.obstacle, b.obstacle, n.obstacle),
         coalesce(w.reason, b.reason, n.reason), k.obstacle, k.reason
    FROM (SELECT q.id FROM makegood.reconciliation_findings q
           WHERE (q.state = 'open' OR (q.state = 'acknowledged' AND EXISTS (
                   SELECT FROM makegood.reconciliation_remedies g WHERE g.finding_id = q.id AND g.state = 'approved')))
             AND q.remedy NOT IN ('human', 'wait') AND (p_classes IS NULL OR q.class = ANY (p_classes))
             AND (v_only IS NULL OR q.last_seen_run = v_only)
             AND (p_after IS NULL OR (q.first_seen_at, q.id) > (
                   SELECT l.first_seen_at, l.id FROM makegood.reconciliation_findings l WHERE l.id = p_after))
           ORDER BY q.first_seen_at, q.id LIMIT p_limit) AS c
    JOIN makegood.reconciliation_findings f ON f.id = c.id
   CROSS JOIN LATERAL (SELECT makegood.remedy_amount(f) AS amount_minor) AS a
    LEFT JOIN makegood.find_run_obstacle(p_run_id, p_terms) AS w ON true
    LEFT JOIN LATERAL makegood.find_obstacle(f, p_terms) AS b ON true
    LEFT JOIN LATERAL makegood.find_cap(makegood.environment_of(p_terms), f.currency, a.amount_minor, f.customer_ref, p_run_id) AS k
      ON f.remedy IN ('refund', 'retry_refund')
    LEFT JOIN makegood.remedy_policy p ON p.environment = makegood.environment_of(p_terms) AND p.class = f.class
    LEFT JOIN makegood.reconciliation_remedies o ON o.finding_id = f.id
     AND o.state IN ('proposed', 'awaiting_approval', 'approved', 'started')
    LEFT JOIN LATERAL makegood.find_flood(f, p_terms) AS n ON o.state IS DISTINCT FROM 'approved'
   ORDER BY f.first_seen_at, f.id;
END
$$;
COMMENT ON FUNCTION makegood.list_remedies(uuid, jsonb, text[], integer, uuid) IS
  'Findings that a run could do something about, oldest first, with what is in the way of each.';

-- A run whose remedies are stopped by what it found is worth an alert: once.
CREATE OR REPLACE FUNCTION makegood.alert_no_remedies(p_run_id uuid, p_obstacle text, p_reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO makegood.outbox (topic, key, payload)
  VALUES ('alert', format('remedies-%s-%s', p_run_id, p_obstacle), jsonb_build_object(
          'kind', 'remedies_blocked', 'entity_id', p_run_id, 'workflow_type', 'reconciliation', 'step', 'remedies',
          'error_type', p_obstacle, 'error', p_reason))
  ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION makegood.alert_no_remedies(uuid, text, text) IS 'Tells people, once, that nothing is put right after a run, and why.';
