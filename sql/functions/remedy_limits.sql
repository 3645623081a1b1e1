-- What may keep a remedy from being done. Asked for a preview, again under the finding's lock when it starts, and again
-- by its own check right before the money moves: one set of rules. No row means that nothing is in the way.

-- How many findings a run of its kind may open before people have to look first.
CREATE OR REPLACE FUNCTION makegood.count_normal(r makegood.reconciliation_runs, p_terms jsonb)
RETURNS TABLE (most double precision, median double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest((p_terms->>'breaker_min')::double precision, (p_terms->>'breaker_factor')::double precision * m.median),
         m.median
    FROM (SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY q.opened), 0) AS median
            FROM makegood.reconciliation_runs q
           WHERE q.kind = r.kind AND q.state = 'matched' AND q.started_at < r.started_at
             AND q.started_at >= r.started_at - interval '7 days') AS m
$$;
COMMENT ON FUNCTION makegood.count_normal(makegood.reconciliation_runs, jsonb) IS
  'Up to how many opened findings a run is normal, and the median of the 7 days before it.';

-- Of a whole run: the kill switch, a source that cannot be trusted, counts that are not normal.
CREATE OR REPLACE FUNCTION makegood.find_run_obstacle(p_run_id uuid, p_terms jsonb)
RETURNS TABLE (obstacle text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r makegood.reconciliation_runs;
  s makegood.remedy_switch;
  n record;
BEGIN
  SELECT * INTO s FROM makegood.remedy_switch;
  IF s.stopped THEN
    RETURN QUERY SELECT 'stopped', format('remedies are stopped by %s: %s', s.changed_by, s.reason);
    RETURN;
  END IF;
  SELECT * INTO r FROM makegood.reconciliation_runs q WHERE q.id = p_run_id;
  IF r.id IS NULL OR r.state <> 'matched' THEN
    RETURN QUERY SELECT 'no_run', 'there is no finished run of the reconciliation to act upon';
  ELSIF r.stale IS NOT NULL THEN
    RETURN QUERY SELECT 'stale', format('the provider''s books are not complete: %s', r.stale);
  ELSIF r.finished_at < clock_timestamp() - make_interval(secs => (p_terms->>'run_age_seconds_max')::double precision) THEN
    RETURN QUERY SELECT 'stale', format('the run ended at %s: reconcile again first', r.finished_at);
  ELSE
    SELECT * INTO n FROM makegood.count_normal(r, p_terms);
    IF r.opened > n.most THEN
      RETURN QUERY SELECT 'abnormal', format('the run opened %s findings; up to %s are normal after a median of %s in 7 days',
                                             r.opened, n.most, n.median);
    END IF;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.find_run_obstacle(uuid, jsonb) IS
  'Why no remedy of a run may be done: stopped, no_run, stale or abnormal; no row if they may.';

-- The charges that a finding is about: its own, and all that name its order or pay for it.
CREATE OR REPLACE FUNCTION makegood.charges_of(f makegood.reconciliation_findings) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_payment text := (SELECT o.payment_ref FROM makegood.reconcilable_orders o WHERE o.order_id = f.order_id LIMIT 1);
BEGIN
  RETURN ARRAY(SELECT f.charge_id WHERE f.charge_id IS NOT NULL
               UNION SELECT c.id FROM makegood.provider_charges c WHERE c.order_ref = f.order_id
               UNION SELECT c.id FROM makegood.provider_charges c WHERE c.payment_ref = v_payment
               UNION SELECT c.id FROM makegood.provider_charges c WHERE c.id = v_payment);
END
$$;
COMMENT ON FUNCTION makegood.charges_of(makegood.reconciliation_findings) IS 'The ids of every charge that a finding''s order may have.';

-- Of one finding: the run that opened it opened too many. That run did nothing about any of them, and the runs after it,
-- which open few, must not either: only a person knows whether all of these are true.
CREATE OR REPLACE FUNCTION makegood.find_flood(f makegood.reconciliation_findings, p_terms jsonb)
RETURNS TABLE (obstacle text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r makegood.reconciliation_runs;
  n record;
BEGIN
  SELECT q.* INTO r FROM makegood.reconciliation_runs q WHERE q.id = coalesce(
    CASE WHEN f.reopened > 0 THEN (
      SELECT h.run_id FROM makegood.reconciliation_history h
       WHERE h.finding_id = f.id AND h.to_state = 'open' AND h.changed_by = 'run' ORDER BY h.id DESC LIMIT 1) END,
    f.first_seen_run);
  IF r.opened > (p_terms->>'breaker_min')::double precision THEN
    SELECT * INTO n FROM makegood.count_normal(r, p_terms);
    IF r.opened > n.most THEN
      RETURN QUERY SELECT 'flood', format('it was opened with %s others on %s, where up to %s are normal: a person looks first',
                                          r.opened - 1, r.started_at, n.most);
    END IF;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.find_flood(makegood.reconciliation_findings, jsonb) IS
  'Whether a finding was opened, or reopened, by a run that opened abnormally many; no row if not.';

-- Whether the books of a finding's unit have changed since the run that last saw it: then the verdict is an old one, and
-- the next run judges anew. A charge that arrived in the meantime is seen here.
CREATE OR REPLACE FUNCTION makegood.has_changed_since(f makegood.reconciliation_findings) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_xid xid8 := (SELECT r.until_xid FROM makegood.reconciliation_runs r WHERE r.id = f.last_seen_run);
  v_charges text[];
BEGIN
  IF f.class = 'D01' AND EXISTS (
       SELECT FROM makegood.provider_charges c JOIN makegood.reconcilable_orders o
           ON o.order_id = c.order_ref OR o.payment_ref IN (c.payment_ref, c.id) WHERE c.id = f.charge_id) THEN
    RETURN true;
  END IF;
  IF v_xid IS NULL THEN
    RETURN false;
  END IF;
  v_charges := makegood.charges_of(f);
  RETURN EXISTS (SELECT FROM makegood.provider_charges c WHERE c.id = ANY (v_charges) AND c.changed_xid >= v_xid)
      OR EXISTS (SELECT FROM makegood.provider_refunds c WHERE c.charge_id = ANY (v_charges) AND c.changed_xid >= v_xid)
      OR EXISTS (SELECT FROM makegood.provider_disputes c WHERE c.charge_id = ANY (v_charges) AND c.changed_xid >= v_xid)
      OR EXISTS (SELECT FROM makegood.reconcilable_orders o WHERE o.order_id = f.order_id AND o.changed_xid >= v_xid);
END
$$;
COMMENT ON FUNCTION makegood.has_changed_since(makegood.reconciliation_findings) IS
  'Whether something about a finding has changed since the run that last saw it.';

-- How much a remedy of this finding would give back: what the verdict says, and never more than the charge still has.
CREATE OR REPLACE FUNCTION makegood.remedy_amount(f makegood.reconciliation_findings) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN f.remedy NOT IN ('refund', 'retry_refund') THEN 0 ELSE coalesce((
    SELECT greatest(0, least(coalesce((f.details->>'act_minor')::bigint, f.amount_at_risk_minor), c.captured_minor - coalesce((
             SELECT sum(q.amount_minor) FROM makegood.provider_refunds q
              WHERE q.charge_id = c.id AND q.status IN ('succeeded', 'pending')), 0)))::bigint
      FROM makegood.provider_charges c WHERE c.id = f.charge_id), 0) END
$$;
COMMENT ON FUNCTION makegood.remedy_amount(makegood.reconciliation_findings) IS
  'What a remedy of a finding would refund, in minor units; 0 where no money moves or none is left.';

-- What a second person approves, and what makes one proposal the same as another.
CREATE OR REPLACE FUNCTION makegood.remedy_digest(p_class text, p_charge_id text, p_amount_minor bigint, p_currency text)
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT encode(sha256(convert_to(jsonb_build_array(p_class, p_charge_id, p_amount_minor, p_currency)::text, 'UTF8')), 'hex')
$$;
COMMENT ON FUNCTION makegood.remedy_digest(text, text, bigint, text) IS
  'SHA-256 in hex of class, charge, amount and currency.';

-- A finding that had closed and broke again is as young as that: what it was before says nothing of now.
CREATE OR REPLACE FUNCTION makegood.broken_since(f makegood.reconciliation_findings) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest(f.first_seen_at, (SELECT max(h.changed_at) FROM makegood.reconciliation_history h
    WHERE f.reopened > 0 AND h.finding_id = f.id AND h.from_state = 'resolved' AND h.to_state = 'open'))
$$;
COMMENT ON FUNCTION makegood.broken_since(makegood.reconciliation_findings) IS
  'When a finding was first seen, or seen again after it had closed.';

-- Of one finding. p_own: the remedy that asks about itself.
CREATE OR REPLACE FUNCTION makegood.find_obstacle(
  f makegood.reconciliation_findings, p_terms jsonb, p_own uuid DEFAULT NULL)
RETURNS TABLE (obstacle text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c makegood.provider_charges;
  v_amount bigint := makegood.remedy_amount(f);
  v_tries bigint;
BEGIN
  IF makegood.has_changed_since(f) THEN
    RETURN QUERY SELECT 'changed', 'the books have changed since the verdict: the next run judges anew';
    RETURN;
  END IF;
  IF f.remedy NOT IN ('refund', 'retry_refund') THEN
    RETURN;
  END IF;
  SELECT * INTO c FROM makegood.provider_charges q WHERE q.id = f.charge_id;
  SELECT count(*) INTO v_tries FROM makegood.reconciliation_remedies r
   WHERE r.finding_id = f.id AND r.state IN ('refused', 'failed') AND r.started_at IS NOT NULL
     AND r.digest = makegood.remedy_digest(f.class, f.charge_id, v_amount, f.currency);
  RETURN QUERY
  SELECT o.obstacle, o.reason FROM (VALUES
    (1, f.class NOT IN ('D01', 'D03', 'D08', 'D19'), 'not_automatic', format('%s is never refunded by a job', f.class)),
    (2, c.id IS NULL, 'no_charge', 'its charge is not in the provider''s books here'),
    (3, c.livemode <> (p_terms->>'livemode')::boolean, 'mode', 'the charge is of the other mode, live or test'),
    (4, EXISTS (SELECT FROM makegood.reconciliation_findings h WHERE h.class = 'D17' AND h.currency = f.currency
                   AND h.state IN ('open', 'acknowledged', 'remedying')),
        'halted', format('amounts in %s are in doubt (D17): nothing in that currency is refunded', f.currency)),
    (5, EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.status IN ('open', 'lost')
                   AND d.charge_id = ANY (makegood.charges_of(f))),
        'disputed', 'a charge of the order is disputed: a refund would give the money twice'),
    (6, f.class = 'D01' AND c.order_ref IS NULL, 'not_ours', 'the charge does not carry our metadata'),
    (7, f.class = 'D01' AND (f.runs_seen < 2 OR f.last_seen_at - makegood.broken_since(f)
                             < make_interval(secs => (p_terms->>'orphan_seconds')::double precision)),
        'too_young', 'an orphan is refunded when two runs an hour apart have not found its order'),
    (8, v_amount <= 0, 'nothing_left', 'nothing of the charge is left to refund'),
    (9, EXISTS (SELECT FROM makegood.reconciliation_remedies r WHERE r.charge_id = f.charge_id AND r.id IS DISTINCT FROM p_own
                   AND r.finding_id <> f.id AND r.remedy IN ('refund', 'retry_refund')
                   AND r.state IN ('proposed', 'awaiting_approval', 'approved', 'started')),
        'busy', 'another remedy of this charge is under way'),
    (10, EXISTS (SELECT FROM makegood.reconciliation_remedies r WHERE r.charge_id = f.charge_id AND r.id IS DISTINCT FROM p_own
                    AND r.remedy IN ('refund', 'retry_refund') AND r.state = 'succeeded'
                    AND NOT EXISTS (SELECT FROM makegood.provider_refunds q WHERE q.id = r.refund_ref)),
        'unsettled', 'an earlier refund of this charge has not shown in the provider''s books yet'),
    (11, p_own IS NULL AND v_tries >= (p_terms->>'refusals_max')::bigint, 'spent',
        format('it was refused %s times: a person decides', v_tries))
  ) AS o(rank, holds, obstacle, reason) WHERE o.holds ORDER BY o.rank LIMIT 1;
END
$$;
COMMENT ON FUNCTION makegood.find_obstacle(makegood.reconciliation_findings, jsonb, uuid) IS
  'Why the remedy of a finding may not be done now; no row if it may.';

-- The caps. Exact only under their lock (lock_remedy_caps); without it, for a preview, a good guess.
-- above_item asks for a second person, who may also go past the other caps; what was approved counts all the same.
CREATE OR REPLACE FUNCTION makegood.find_cap(
  p_environment text, p_currency text, p_amount_minor bigint, p_customer_ref text, p_run_id uuid)
RETURNS TABLE (obstacle text, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k makegood.remedy_caps;
  s record;
BEGIN
  SELECT * INTO k FROM makegood.remedy_caps q WHERE q.environment = p_environment AND q.currency = p_currency;
  IF k.currency IS NULL THEN
    RETURN QUERY SELECT 'no_caps', format('no caps are set for %s: makegood reconcile policy set --currency %s …', p_currency, p_currency);
    RETURN;
  END IF;
  IF p_amount_minor > k.item_minor THEN
    RETURN QUERY SELECT 'above_item', format('%s is more than %s goes back without a second person', p_amount_minor, k.item_minor);
    RETURN;
  END IF;
  SELECT count(*) FILTER (WHERE r.run_id = p_run_id) AS run_count,
         coalesce(sum(r.amount_minor) FILTER (WHERE r.run_id = p_run_id), 0) AS run_minor,
         count(*) FILTER (WHERE r.started_at > n.t - interval '24 hours') AS day_count,
         coalesce(sum(r.amount_minor) FILTER (WHERE r.started_at > n.t - interval '24 hours'), 0) AS day_minor,
         count(*) FILTER (WHERE r.customer_ref = p_customer_ref) AS customer_count,
         coalesce(sum(r.amount_minor) FILTER (WHERE r.customer_ref = p_customer_ref), 0) AS customer_minor
    INTO s
    FROM (SELECT clock_timestamp() AS t) AS n
    JOIN makegood.reconciliation_remedies r ON r.environment = p_environment AND r.currency = p_currency
     AND r.state IN ('started', 'succeeded') AND r.remedy IN ('refund', 'retry_refund')
     AND r.started_at > n.t - interval '30 days';
  RETURN QUERY
  SELECT o.obstacle, format('the cap %s is reached: %s of %s refunds and %s of %s %s', o.words, o.n, o.n_max, o.minor,
                            o.minor_max, p_currency)
    FROM (VALUES
      ('run_cap', 'of a run', s.run_count, k.run_count, s.run_minor, k.run_minor),
      ('day_cap', 'of 24 hours', s.day_count, k.day_count, s.day_minor, k.day_minor),
      ('customer_cap', 'of a customer in 30 days', s.customer_count, k.customer_count, s.customer_minor, k.customer_minor)
    ) AS o(obstacle, words, n, n_max, minor, minor_max)
   WHERE (o.obstacle <> 'customer_cap' OR p_customer_ref IS NOT NULL)
     AND (o.n + 1 > o.n_max OR o.minor + p_amount_minor > o.minor_max) LIMIT 1;
END
$$;
COMMENT ON FUNCTION makegood.find_cap(text, text, bigint, text, uuid) IS
  'The cap that a refund would break: no_caps, above_item, run_cap, day_cap or customer_cap; no row if none.';

-- Those who refund in one currency come one after the other from here to their commit, so that sums are exact.
CREATE OR REPLACE FUNCTION makegood.lock_remedy_caps(p_environment text, p_currency text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_advisory_xact_lock(hashtextextended(format('makegood.remedy_caps %s %s', p_environment, p_currency), 0))
$$;
COMMENT ON FUNCTION makegood.lock_remedy_caps(text, text) IS 'Until the end of the transaction the only one that adds to these caps.';
