-- Matching: which orders and charges a run looks at, and what it makes of them. The rules are in verdicts.sql, the life
-- of findings in findings.sql.

-- An order and its charge that need no thought. Full and incremental runs set these aside by this one test.
-- No search_path of its own, so that the planner can look inside.
CREATE OR REPLACE FUNCTION makegood.is_plain_pair(
  p_order_id text, p_status text, p_order_minor bigint, p_order_currency text, p_refunded_minor bigint, p_plain boolean,
  p_given_back boolean, p_order_ref text, p_captured_minor bigint, p_currency text, p_livemode boolean, p_live boolean)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT p_captured_minor = p_order_minor
         AND CASE WHEN p_plain THEN p_refunded_minor = 0 AND p_status IN ('paid', 'fulfilled')
                  WHEN p_given_back THEN p_refunded_minor = p_order_minor AND p_status = 'cancelled'
                  ELSE false END
         AND coalesce(p_order_ref, p_order_id) = p_order_id AND p_currency = p_order_currency AND p_livemode = p_live
$$;
COMMENT ON FUNCTION makegood.is_plain_pair(text, text, bigint, text, bigint, boolean, boolean, text, bigint, text, boolean, boolean) IS
  'Whether an order and the charge of its payment are matched without a closer look: paid once, or paid and given back.';

-- Nothing was paid and nothing was to be: a declined card, an order that was never paid. Either side may be absent.
CREATE OR REPLACE FUNCTION makegood.is_nothing(
  p_order_id text, p_status text, p_refunded_minor bigint, p_charge_id text, p_charge_status text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_charge_id IS NULL OR p_charge_status IN ('failed', 'lapsed'))
         AND (p_order_id IS NULL OR (p_status IN ('pending', 'cancelled') AND p_refunded_minor = 0))
$$;
COMMENT ON FUNCTION makegood.is_nothing(text, text, bigint, text, text) IS
  'Whether an order and a charge, either may be absent, say that no money moved and none should have.';

-- Opens a run. Its terms are kept with it, so that a verdict can be understood later. The watermark is the least of
-- those of charges, refunds and disputes: a verdict rests on all three.
-- A source that was not fetched completely or is too old makes the run stale: it still looks, and no remedy may follow.
CREATE OR REPLACE FUNCTION makegood.begin_reconciliation(
  p_run_id uuid, p_kind text, p_terms jsonb, p_window tstzrange DEFAULT NULL)
RETURNS makegood.reconciliation_runs
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_run makegood.reconciliation_runs;
  v_watermark timestamptz;
  v_stale text;
BEGIN
  SELECT CASE WHEN count(*) FILTER (WHERE s.watermark IS NULL) = 0 THEN min(s.watermark) END,
         string_agg(format('%s/%s %s', s.provider, s.collection, f.fault), '; ' ORDER BY s.provider, s.collection)
           FILTER (WHERE f.fault IS NOT NULL)
    INTO v_watermark, v_stale
    FROM makegood.provider_sync s CROSS JOIN LATERAL (SELECT makegood.source_fault(s, p_terms, t) AS fault) AS f
   WHERE s.collection IN ('charges', 'refunds', 'disputes');
  IF v_watermark IS NULL AND v_stale IS NULL THEN
    v_stale := 'nothing was ever fetched from a provider';
  END IF;
  INSERT INTO makegood.reconciliation_runs (id, kind, terms, watermark, stale, started_at)
  VALUES (p_run_id, p_kind, p_terms || CASE WHEN p_window IS NULL THEN '{}' ELSE jsonb_build_object(
            'from', lower(p_window), 'until', upper(p_window)) END, v_watermark, v_stale, t)
  ON CONFLICT (id) DO NOTHING;
  SELECT * INTO v_run FROM makegood.reconciliation_runs r WHERE r.id = p_run_id;
  RETURN v_run;
END
$$;
COMMENT ON FUNCTION makegood.begin_reconciliation(uuid, text, jsonb, tstzrange) IS
  'Opens a run of the reconciliation with its terms and the watermark it may judge up to; the same id again is the same run.';

-- Carries out a run and returns its row. Run twice, it is the same; what was seen before it died is not half written:
-- all of it is one transaction. Call it under REPEATABLE READ: then a full run's comparison with what incremental runs
-- would have said is exact.
CREATE OR REPLACE FUNCTION makegood.match_charges(p_run_id uuid)
RETURNS makegood.reconciliation_runs
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET work_mem = '128MB'
  SET default_statistics_target = 10 AS $$  -- of our own tables the planner need only know how large they are
DECLARE
  v_run makegood.reconciliation_runs;
  v_check makegood.reconciliation_runs;
  v_since xid8;
  v_until xid8 := pg_snapshot_xmin(pg_current_snapshot());
  t timestamptz;
BEGIN
  -- One at a time: two would open and close the same findings. An optimisation, not the guarantee.
  PERFORM pg_advisory_xact_lock(hashtextextended('makegood.match_charges', 0));
  SELECT * INTO v_run FROM makegood.reconciliation_runs r WHERE r.id = p_run_id FOR UPDATE;
  IF v_run.id IS NULL THEN
    RAISE EXCEPTION 'there is no run % to carry out', p_run_id USING ERRCODE = 'MG011',
      HINT = 'Open it with makegood.begin_reconciliation().';
  END IF;
  IF v_run.state = 'matched' THEN
    RETURN v_run;
  END IF;
  SELECT r.until_xid INTO v_since FROM makegood.reconciliation_runs r
   WHERE r.state = 'matched' AND r.kind <> 'window' AND r.until_xid IS NOT NULL ORDER BY r.finished_at DESC LIMIT 1;
  IF makegood.forget_other_server() OR v_since > pg_snapshot_xmax(pg_current_snapshot()) THEN
    v_since := NULL;
    v_run.kind := CASE v_run.kind WHEN 'incremental' THEN 'full' ELSE v_run.kind END;
  END IF;
  -- One time for all of it: a deadline that passes between two passes would look like something that was missed.
  t := clock_timestamp();
  PERFORM makegood.lay_out(v_run, t);
  IF v_run.kind = 'full' AND v_since IS NOT NULL AND makegood.few_changes_since(v_since) THEN
    -- First what an incremental run would do now; what the full one then still finds or closes, those have missed.
    v_check := v_run;
    v_check.kind := 'incremental';
    PERFORM makegood.see_changed(v_since);
    PERFORM makegood.judge_all(v_check, false);
    PERFORM makegood.lay_out(v_run, t);
    v_run.missed := 0;
  END IF;
  IF v_run.kind = 'incremental' THEN
    PERFORM makegood.see_changed(v_since);
  ELSIF v_run.kind = 'window' THEN
    PERFORM makegood.see_window((v_run.terms->>'from')::timestamptz, (v_run.terms->>'until')::timestamptz);
  ELSE
    PERFORM makegood.see_everything();
  END IF;
  PERFORM makegood.judge_all(v_run, true);
  PERFORM makegood.record_duplicates(v_run);
  UPDATE makegood.reconciliation_runs AS r
     SET state = 'matched', kind = v_run.kind, since_xid = v_since, until_xid = v_until, finished_at = clock_timestamp(), error = NULL,
         looked_at = s.looked_at, opened = s.opened, closed = s.closed,
         missed = CASE WHEN v_run.missed IS NOT NULL THEN s.opened_last + s.closed_last END
    FROM (SELECT max(w.looked_at) AS looked_at, sum(w.opened) AS opened, sum(w.closed) AS closed,
                 (array_agg(w.opened ORDER BY w.id DESC))[1] AS opened_last,
                 (array_agg(w.closed ORDER BY w.id DESC))[1] AS closed_last FROM pg_temp.work w) AS s
   WHERE r.id = p_run_id RETURNING r.* INTO v_run;
  RETURN v_run;
END
$$;
COMMENT ON FUNCTION makegood.match_charges(uuid) IS
  'Carries out a run that begin_reconciliation opened: verdicts, findings and totals in one transaction; returns its row.';

-- After a dump and a restore rows have the numbers of another server's transactions. One that is not reached here yet would
-- count as a change in every run until it is, and changes from here on as none. Seen by an index in no time otherwise.
CREATE OR REPLACE FUNCTION makegood.forget_other_server() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  -- What this very transaction wrote is not ahead of it.
  v_ahead xid8 := greatest(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id());
  v_table text;
  v_found boolean;
  v_any boolean := false;
BEGIN
  FOREACH v_table IN ARRAY ARRAY['orders', 'provider_charges', 'provider_refunds', 'provider_disputes',
                                 'provider_balance_transactions', 'provider_payouts'] LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM makegood.%I WHERE changed_xid > $1)', v_table) INTO v_found USING v_ahead;
    IF v_found THEN
      v_any := true;
      -- 3 is the first of all: what this run looks at is new to none after it.
      EXECUTE format('UPDATE makegood.%I SET changed_xid = ''3'' WHERE changed_xid > $1', v_table) USING v_ahead;
    END IF;
  END LOOP;
  RETURN v_any;
END
$$;
COMMENT ON FUNCTION makegood.forget_other_server() IS
  'Renumbers changes that another server''s transactions made (dump and restore); true if there were any: then all has to be looked at.';

-- The tables that one pass works with; they go with the transaction, and this sees them out when a second pass begins.
--   p_now  the run's time, the same for each of its passes
CREATE OR REPLACE FUNCTION makegood.lay_out(p_run makegood.reconciliation_runs, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := p_now;
  g jsonb := p_run.terms;
BEGIN
  DROP TABLE IF EXISTS pg_temp.terms, pg_temp.everything, pg_temp.others, pg_temp.plainly, pg_temp.side_verdicts, pg_temp.seen_orders,
    pg_temp.seen_charges, pg_temp.seen_refunds, pg_temp.seen_disputes, pg_temp.seen_workflows, pg_temp.links,
    pg_temp.charge_facts, pg_temp.order_facts, pg_temp.order_breaks, pg_temp.verdicts;
  CREATE TEMPORARY TABLE terms ON COMMIT DROP AS
  SELECT (g->>'livemode')::boolean AS livemode, (g->>'tolerance_minor')::bigint AS tolerance_minor, t AS now_at,
         -- Before the books have come that far there is nothing new to say.
         least(t, p_run.watermark) AS due_before,
         t + make_interval(secs => (g->>'lapse_warning_seconds')::double precision) AS lapse_before,
         p_run.watermark - make_interval(secs => (g->>'charge_grace_seconds')::double precision) AS judge_charges_before,
         p_run.watermark - make_interval(secs => (g->>'refund_grace_seconds')::double precision) AS judge_refunds_before,
         p_run.watermark - make_interval(secs => (g->>'payout_grace_seconds')::double precision) AS judge_payouts_before,
         make_interval(secs => (g->>'charge_grace_seconds')::double precision) AS charge_grace,
         make_interval(secs => (g->>'refund_grace_seconds')::double precision) AS refund_grace,
         (g->>'fee_parts_min')::bigint AS fee_parts_min, (g->>'fee_parts_max')::bigint AS fee_parts_max,
         (g->>'fee_fixed_minor')::bigint AS fee_fixed_minor;
  -- What an incremental run met, one by one; a full run has sums instead, in the table everything.
  CREATE TEMPORARY TABLE plainly (
    order_id text, charge_id text, clean boolean, currency text, charges bigint, amount_minor numeric) ON COMMIT DROP;
  CREATE TEMPORARY TABLE side_verdicts (
    unit text, charge_id text, currency text, class text, at_risk_minor bigint, remedy text, due_at timestamptz,
    details jsonb) ON COMMIT DROP;
  CREATE TEMPORARY TABLE seen_orders (LIKE makegood.reconcilable_orders) ON COMMIT DROP;
  CREATE TEMPORARY TABLE seen_charges (LIKE makegood.provider_charges) ON COMMIT DROP;
  IF to_regclass('pg_temp.work') IS NULL THEN
    CREATE TEMPORARY TABLE work (
      id integer GENERATED ALWAYS AS IDENTITY, looked_at bigint, opened bigint, closed bigint) ON COMMIT DROP;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.lay_out(makegood.reconciliation_runs, timestamptz) IS 'Makes the working tables of one pass of match_charges.';

-- Whether so little has changed that looking at it twice costs little: a twentieth of all charges.
CREATE OR REPLACE FUNCTION makegood.few_changes_since(p_since xid8) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT (SELECT count(*) FROM (SELECT FROM makegood.provider_charges c WHERE c.changed_xid >= p_since LIMIT 100000) AS n)
         <= greatest((SELECT k.reltuples FROM pg_class k WHERE k.oid = 'makegood.provider_charges'::regclass) / 20, 1000)
$$;
COMMENT ON FUNCTION makegood.few_changes_since(xid8) IS 'Whether a full run can afford to check the incremental ones.';

-- Everything. One pass over both sides puts plain pairs aside, as sums, and keeps the names of the few others.
CREATE OR REPLACE FUNCTION makegood.see_everything() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_live boolean := (SELECT t.livemode FROM terms t);
  v_shared text[] := '{}';
BEGIN
  -- Charges that name no order are only plain where no two orders claim their payment.
  IF EXISTS (SELECT FROM makegood.provider_charges c WHERE c.order_ref IS NULL) THEN
    v_shared := ARRAY(
      SELECT o.payment_ref FROM makegood.reconcilable_orders o
       WHERE o.payment_ref IN (SELECT c.payment_ref FROM makegood.provider_charges c WHERE c.order_ref IS NULL)
       GROUP BY 1 HAVING count(*) > 1);
  END IF;
  -- As text, with its values: a plan with parameters, or over a temporary table, would use one core only.
  EXECUTE format($q$
    CREATE TEMPORARY TABLE everything ON COMMIT DROP AS
    SELECT p.currency, count(p.payment_ref) AS charges, sum(p.captured_minor) AS amount_minor,
           array_agg(jsonb_build_array(p.order_id, p.payment_ref, p.captured_minor)) FILTER (WHERE NOT p.clean) AS others
      FROM (SELECT o.order_id, c.payment_ref, c.currency, c.captured_minor,
                   coalesce(makegood.is_plain_pair(o.order_id, o.status, o.amount_minor, o.currency, o.refunded_minor,
                              c.plain, c.given_back, c.order_ref, c.captured_minor, c.currency, c.livemode, %L)
                            AND (c.order_ref IS NOT NULL OR c.payment_ref <> ALL (%L::text[])), false)
                     OR makegood.is_nothing(o.order_id, o.status, o.refunded_minor, c.payment_ref, c.status) AS clean
              FROM makegood.reconcilable_orders o FULL JOIN makegood.provider_charges c ON c.payment_ref = o.payment_ref) AS p
     GROUP BY 1$q$, v_live, v_shared);
  CREATE TEMPORARY TABLE others ON COMMIT DROP AS
  SELECT e.currency, o->>0 AS order_id, o->>1 AS payment_ref, (o->>2)::bigint AS captured_minor
    FROM everything e CROSS JOIN LATERAL unnest(e.others) AS o;
  -- Where the workflow says otherwise, a pair is not plain.
  PERFORM makegood.see(
    ARRAY(SELECT p.order_id FROM others p WHERE p.order_id IS NOT NULL
          UNION SELECT makegood.contradicted_orders()
          UNION SELECT makegood.late_orders((SELECT t.now_at FROM terms t))),
    ARRAY(SELECT DISTINCT p.payment_ref FROM others p WHERE p.payment_ref IS NOT NULL), '{}', true);
  PERFORM makegood.see_payouts_and_fees('0'::xid8);
END
$$;
COMMENT ON FUNCTION makegood.see_everything() IS 'Picks what is not plainly matched among all orders and charges.';

-- What changed since a transaction, what time has come for, and what is late. Null: everything counts as changed.
CREATE OR REPLACE FUNCTION makegood.see_changed(p_since xid8) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_mergejoin = off AS $$
DECLARE
  v_live boolean := (SELECT t.livemode FROM terms t);
BEGIN
  IF p_since IS NULL THEN
    PERFORM makegood.see_everything();
    RETURN;
  END IF;
  INSERT INTO plainly
  WITH o AS MATERIALIZED (
    SELECT * FROM makegood.reconcilable_orders r WHERE r.changed_xid >= p_since
  ), c AS MATERIALIZED (
    SELECT * FROM makegood.provider_charges r WHERE r.changed_xid >= p_since
  ), met AS MATERIALIZED (
    SELECT o.order_id, o.status AS order_status, o.amount_minor, o.currency AS order_currency, o.refunded_minor,
           o.payment_ref AS order_payment, c.id, c.payment_ref AS charge_payment, c.status, c.plain, c.given_back,
           c.order_ref, c.captured_minor, c.currency, c.livemode
      FROM o FULL JOIN c ON c.payment_ref = o.payment_ref
  ), completed AS (
    -- The other side of a pair of which one half changed. A null key finds nothing at once.
    SELECT coalesce(m.order_id, o2.order_id) AS order_id, coalesce(m.order_status, o2.status) AS order_status,
           coalesce(m.amount_minor, o2.amount_minor) AS amount_minor,
           coalesce(m.order_currency, o2.currency) AS order_currency,
           coalesce(m.refunded_minor, o2.refunded_minor) AS refunded_minor,
           coalesce(m.order_payment, m.charge_payment) AS payment_ref, coalesce(m.id, c2.id) AS id, coalesce(m.status, c2.status) AS status, coalesce(m.plain, c2.plain) AS plain,
           coalesce(m.given_back, c2.given_back) AS given_back,
           coalesce(m.order_ref, c2.order_ref) AS order_ref,
           coalesce(m.captured_minor, c2.captured_minor) AS captured_minor, coalesce(m.currency, c2.currency) AS currency,
           coalesce(m.livemode, c2.livemode) AS livemode
      FROM met m
      LEFT JOIN makegood.provider_charges c2 ON c2.payment_ref = CASE WHEN m.id IS NULL THEN m.order_payment END
      LEFT JOIN makegood.reconcilable_orders o2 ON o2.payment_ref = CASE WHEN m.order_id IS NULL THEN m.charge_payment END
  ), judged AS (
    SELECT p.order_id, p.id, p.currency, p.captured_minor,
           (coalesce(makegood.is_plain_pair(p.order_id, p.order_status, p.amount_minor, p.order_currency, p.refunded_minor,
                       p.plain, p.given_back, p.order_ref, p.captured_minor, p.currency, p.livemode, v_live), false)
              AND p.order_ref IS NOT NULL
            OR makegood.is_nothing(p.order_id, p.order_status, p.refunded_minor, p.id, p.status))
           -- Each asked for by itself, through an index: as EXISTS the planner would rather read the whole table once.
           -- What was ever more than plain is looked at closely: it may have company, or a finding to close.
           AND (SELECT 1 FROM makegood.reconciliation_units u WHERE u.order_id = p.order_id LIMIT 1) IS NULL
           -- Its workflow goes with it, and nobody else claims its payment.
           AND (SELECT 1 FROM makegood.workflow_executions e
                 WHERE e.entity_id = p.order_id AND e.current_state IN ('failed', 'compensated')
                   AND p.order_status IN ('paid', 'fulfilled') LIMIT 1) IS NULL
           AND (SELECT 1 FROM makegood.workflow_executions e
                 WHERE e.entity_id = CASE p.order_status WHEN 'cancelled' THEN p.order_id END
                   AND e.finished_at IS NULL LIMIT 1) IS NULL
           AND (SELECT 1 FROM makegood.reconcilable_orders x
                 WHERE x.payment_ref = p.payment_ref AND x.order_id <> p.order_id LIMIT 1) IS NULL AS clean
      FROM completed p
  )
  SELECT j.order_id, j.id, j.clean, j.currency, (j.id IS NOT NULL)::integer, j.captured_minor FROM judged j;
  PERFORM makegood.see(
    ARRAY(SELECT p.order_id FROM plainly p WHERE NOT p.clean AND p.order_id IS NOT NULL
          UNION SELECT u.order_id FROM makegood.reconciliation_units u, terms t
                 WHERE u.due_at <= t.due_before AND u.order_id IS NOT NULL
          -- Whose time to be ignored is over.
          UNION SELECT f.order_id FROM makegood.reconciliation_findings f, terms t
                 WHERE f.state = 'ignored' AND f.ignored_until <= t.now_at AND f.unit LIKE 'order:%'
          -- What stood still and was taken on is not late any more, and nothing else says so.
          UNION SELECT f.order_id FROM makegood.reconciliation_findings f
                 WHERE f.state <> 'resolved' AND f.class = 'D02' AND f.unit LIKE 'order:%'
          UNION SELECT makegood.late_orders((SELECT t.now_at FROM terms t))),
    '{}',
    ARRAY(SELECT p.charge_id FROM plainly p WHERE NOT p.clean AND p.charge_id IS NOT NULL
          UNION SELECT u.charge_id FROM makegood.reconciliation_units u, terms t
                 WHERE u.due_at <= t.due_before AND u.unit LIKE 'charge:%'
          UNION SELECT substr(f.unit, 8) FROM makegood.reconciliation_findings f, terms t
                 WHERE f.state = 'ignored' AND f.ignored_until <= t.now_at AND f.unit LIKE 'charge:%'
          UNION SELECT r.charge_id FROM makegood.provider_refunds r WHERE r.changed_xid >= p_since
          UNION SELECT d.charge_id FROM makegood.provider_disputes d WHERE d.changed_xid >= p_since), false);
  PERFORM makegood.see_payouts_and_fees(p_since);
END
$$;
COMMENT ON FUNCTION makegood.see_changed(xid8) IS 'Picks what changed since a transaction and what time has come for.';

-- One span of time, by when orders were placed and charges were made.
CREATE OR REPLACE FUNCTION makegood.see_window(p_from timestamptz, p_until timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM makegood.see(
    ARRAY(SELECT o.order_id FROM makegood.reconcilable_orders o WHERE o.created_at >= p_from AND o.created_at < p_until),
    '{}',
    ARRAY(SELECT c.id FROM makegood.provider_charges c WHERE c.created_at >= p_from AND c.created_at < p_until), false);
END
$$;
COMMENT ON FUNCTION makegood.see_window(timestamptz, timestamptz) IS 'Picks the orders and charges of one span of time, half open.';

-- Orders whose workflow is past its deadline, held or being undone: time alone has made them worth a look.
CREATE OR REPLACE FUNCTION makegood.late_orders(p_now timestamptz) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.entity_id FROM makegood.workflow_executions e
   WHERE e.current_state NOT IN ('completed', 'failed', 'compensated')
     AND (e.current_state = 'compensating' OR e.held_at IS NOT NULL OR e.deadline_at <= p_now)
$$;
COMMENT ON FUNCTION makegood.late_orders(timestamptz) IS 'The orders of workflows that are late, held or being undone.';

-- Orders that say paid where their workflow was undone, or cancelled where it still goes on.
CREATE OR REPLACE FUNCTION makegood.contradicted_orders() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT o.order_id FROM makegood.workflow_executions e
    JOIN makegood.reconcilable_orders o ON o.order_id = e.entity_id AND o.status IN ('paid', 'fulfilled')
   WHERE e.current_state IN ('failed', 'compensated')
  UNION ALL
  SELECT o.order_id FROM makegood.workflow_executions e
    JOIN makegood.reconcilable_orders o ON o.order_id = e.entity_id AND o.status = 'cancelled'
   WHERE e.current_state NOT IN ('completed', 'failed', 'compensated')
$$;
COMMENT ON FUNCTION makegood.contradicted_orders() IS 'The orders whose status and workflow do not go together.';

-- Gathers orders and charges with everything they may belong to, until nothing new is found: with an order all charges
-- that could be its own, with a charge all orders that could own it. Bounded: a chain longer than this is no order's.
--   p_names_known  a full run has met every charge: one that names an order and is not in a plain pair with it is among
--                  p_payments already, and so is one that two orders claim. Then these need not be looked up.
CREATE OR REPLACE FUNCTION makegood.see(
  p_orders text[], p_payments text[], p_charges text[], p_names_known boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_orders text[] := p_orders;
  v_payments text[] := p_payments;
  v_named text[];
  v_more boolean;
BEGIN
  INSERT INTO seen_charges SELECT c.* FROM makegood.provider_charges c WHERE c.id = ANY (p_charges);
  FOR v_round IN 1..8 LOOP
    WITH added AS (
      INSERT INTO seen_orders SELECT o.* FROM makegood.reconcilable_orders o WHERE o.order_id = ANY (v_orders)
      RETURNING order_id, payment_ref
    )
    SELECT array_agg(a.payment_ref) FILTER (WHERE a.payment_ref IS NOT NULL) || v_payments,
           array_agg(a.order_id)
      INTO v_payments, v_named FROM added a;
    INSERT INTO seen_charges SELECT c.* FROM makegood.provider_charges c
     WHERE c.payment_ref = ANY (v_payments) AND c.id NOT IN (SELECT s.id FROM seen_charges s);
    IF p_names_known AND v_round = 1 THEN
      -- A charge that took nothing is nothing to anybody but the order that it names, where that one has no other: whether
      -- a card was declined, or an authorisation lapsed, or there was never a charge is not the same.
      -- Each asked for through an index: there are few, and the planner would rather read all charges once more.
      INSERT INTO seen_charges
      SELECT n.* FROM seen_orders o
       CROSS JOIN LATERAL (SELECT * FROM makegood.provider_charges c WHERE c.order_ref = o.order_id OFFSET 0) AS n
       WHERE NOT EXISTS (SELECT FROM seen_charges s WHERE s.captured_minor > 0 AND s.payment_ref = o.payment_ref)
         AND NOT EXISTS (SELECT FROM seen_charges s WHERE s.id = n.id);
      v_named := NULL;
    END IF;
    -- An order may keep the charge's own id.
    v_payments := ARRAY(SELECT unnest(v_payments) EXCEPT SELECT s.payment_ref FROM seen_charges s);
    INSERT INTO seen_charges SELECT c.* FROM makegood.provider_charges c
     WHERE (c.id = ANY (v_payments) OR c.order_ref = ANY (v_named)) AND c.id NOT IN (SELECT s.id FROM seen_charges s);
    v_payments := '{}';
    SELECT array_agg(f.order_id) INTO v_orders FROM (
      SELECT c.order_ref AS order_id FROM seen_charges c WHERE c.order_ref IS NOT NULL
      UNION
      SELECT o.order_id FROM seen_charges c JOIN makegood.reconcilable_orders o ON o.payment_ref IN (c.payment_ref, c.id)
       WHERE NOT p_names_known
    ) AS f WHERE NOT EXISTS (SELECT FROM seen_orders s WHERE s.order_id = f.order_id);
    SELECT EXISTS (SELECT FROM makegood.reconcilable_orders o WHERE o.order_id = ANY (v_orders)) INTO v_more;
    EXIT WHEN NOT v_more;
  END LOOP;
  CREATE TEMPORARY TABLE seen_refunds ON COMMIT DROP AS
  SELECT r.charge_id, r.status, r.amount_minor, r.created_at
    FROM makegood.provider_refunds r WHERE r.charge_id IN (SELECT c.id FROM seen_charges c);
  CREATE TEMPORARY TABLE seen_disputes ON COMMIT DROP AS
  SELECT d.charge_id, d.status, d.amount_minor, d.created_at
    FROM makegood.provider_disputes d WHERE d.charge_id IN (SELECT c.id FROM seen_charges c);
  CREATE TEMPORARY TABLE seen_workflows ON COMMIT DROP AS
  SELECT o.order_id, e.current_state, e.deadline_at, e.held_at IS NOT NULL AS held, e.updated_at
    FROM seen_orders o JOIN makegood.workflow_executions e ON e.entity_id = o.order_id AND e.workflow_type = o.workflow_type;
  ANALYZE seen_orders (order_id, payment_ref), seen_charges (id, payment_ref, order_ref), seen_refunds (charge_id),
    seen_disputes (charge_id), seen_workflows (order_id);
END
$$;
COMMENT ON FUNCTION makegood.see(text[], text[], text[], boolean) IS
  'Fills the seen_* tables with these orders and charges and everything that hangs together with them.';

-- Payouts and fees are units of their own: they say nothing of a single order.
CREATE OR REPLACE FUNCTION makegood.see_payouts_and_fees(p_since xid8) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO side_verdicts
  SELECT 'balance:' || b.id, b.source_ref, b.currency, 'D30', greatest(b.fee_minor - m.most_minor, m.least_minor - b.fee_minor),
         'record', NULL::timestamptz, jsonb_build_object('fee_minor', b.fee_minor, 'amount_minor', b.amount_minor,
                                                         'least_minor', m.least_minor, 'most_minor', m.most_minor)
    FROM makegood.provider_balance_transactions b CROSS JOIN terms t
   CROSS JOIN LATERAL (SELECT b.amount_minor * t.fee_parts_min / 10000 AS least_minor,
                              b.amount_minor * t.fee_parts_max / 10000 + t.fee_fixed_minor AS most_minor) AS m
   WHERE b.changed_xid >= p_since AND b.kind = 'charge' AND b.fee_minor NOT BETWEEN m.least_minor AND m.most_minor
  UNION ALL
  -- A fee that was put right, or that the settings allow by now. Only of what was found: the others need no word.
  SELECT f.unit, b.source_ref, b.currency, 'MATCHED', 0, 'record', NULL, '{}'
    FROM makegood.reconciliation_findings f JOIN makegood.provider_balance_transactions b ON b.id = substr(f.unit, 9)
   CROSS JOIN terms t
   WHERE f.class = 'D30' AND f.state <> 'resolved'
     AND (b.kind <> 'charge' OR b.fee_minor BETWEEN b.amount_minor * t.fee_parts_min / 10000
                                                AND b.amount_minor * t.fee_parts_max / 10000 + t.fee_fixed_minor)
  UNION ALL
  -- A payout that was made by hand has no parts that could be asked for, and one whose parts are not all here yet says
  -- nothing. What failed or was cancelled is no break any more: its money came back.
  SELECT 'payout:' || p.id, NULL, p.currency,
         CASE WHEN p.status <> 'paid' OR NOT k.known OR p.amount_minor = coalesce(s.net_minor, 0) THEN 'MATCHED'
              WHEN p.created_at < t.judge_payouts_before THEN 'D29' ELSE 'PENDING' END,
         abs(p.amount_minor - coalesce(s.net_minor, 0)), 'human',
         CASE WHEN p.created_at >= t.judge_payouts_before OR t.judge_payouts_before IS NULL THEN t.now_at END,
         jsonb_build_object('payout_minor', p.amount_minor, 'sum_minor', coalesce(s.net_minor, 0), 'movements', coalesce(s.n, 0))
    FROM makegood.provider_payouts p CROSS JOIN terms t
    LEFT JOIN LATERAL (SELECT sum(b.net_minor)::bigint AS net_minor, count(*) AS n
                         FROM makegood.provider_balance_transactions b
                        WHERE b.payout_ref = p.id AND b.kind <> 'payout') AS s ON true
   CROSS JOIN LATERAL (SELECT
       NOT EXISTS (SELECT FROM makegood.provider_sync y
                    WHERE y.provider = p.provider AND y.collection = 'payouts' AND y.fetched_at IS NOT NULL)
       OR EXISTS (SELECT FROM makegood.provider_payouts_read q WHERE q.payout_id = p.id AND q.with_parts) AS known) AS k
   WHERE p.status IN ('paid', 'failed', 'canceled')
     AND p.id IN (SELECT q.id FROM makegood.provider_payouts q WHERE q.changed_xid >= p_since
                  UNION SELECT b.payout_ref FROM makegood.provider_balance_transactions b
                         WHERE b.changed_xid >= p_since AND b.payout_ref IS NOT NULL
                  UNION SELECT substr(u.unit, 8) FROM makegood.reconciliation_units u
                         WHERE u.due_at <= t.due_before AND u.unit LIKE 'payout:%'
                  UNION SELECT substr(f.unit, 8) FROM makegood.reconciliation_findings f
                         WHERE f.state = 'ignored' AND f.ignored_until <= t.now_at AND f.unit LIKE 'payout:%');
END
$$;
COMMENT ON FUNCTION makegood.see_payouts_and_fees(xid8) IS 'Judges payouts (D29) and fees (D30) that changed since a transaction.';
