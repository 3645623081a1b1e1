-- The life of findings: opened when seen, seen again, closed by themselves, reopened. One row per discrepancy.

-- As the rules do. No search_path of its own, so that the planner can look inside.
CREATE OR REPLACE FUNCTION makegood.order_unit(p_order_id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT 'order:' || CASE WHEN length(p_order_id) <= 294 THEN p_order_id
                          ELSE substr(p_order_id, 1, 250) || ' ' || md5(p_order_id) END
$$;
COMMENT ON FUNCTION makegood.order_unit(text) IS 'The unit of an order: order:<id>, or of a long id its beginning and its digest.';

-- Judges what was seen and writes it down. p_counts: also the run's totals.
CREATE OR REPLACE FUNCTION makegood.judge_all(p_run makegood.reconciliation_runs, p_counts boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_opened bigint;
  v_closed bigint;
BEGIN
  PERFORM makegood.judge_seen();
  INSERT INTO side_verdicts SELECT * FROM makegood.judge_sources(p_run);
  CREATE TEMPORARY TABLE judged ON COMMIT DROP AS
  SELECT v.unit, v.order_id, v.charge_id, v.customer_ref, v.currency, v.class, v.would_be || ' ' || v.also AS breaks,
         v.at_risk_minor, v.remedy,
         CASE WHEN v.class = 'PENDING' AND v.would_be = 'PENDING' THEN v.capture_before - (t.lapse_before - t.now_at)
              WHEN v.class = 'PENDING' THEN v.youngest_at + CASE WHEN v.would_be IN ('D18', 'D19', 'D20', 'D21')
                                                                 THEN t.refund_grace ELSE t.charge_grace END
              -- An orphan is given back only when a second run, an hour later, has not found its order either.
              WHEN v.class = 'D01' THEN t.now_at + interval '1 hour' END AS due_at,
         -- Kept in reconciliation_units: what an incremental run must know of when something else arrives.
         v.class <> 'MATCHED' OR v.company = 1 AS kept,
         -- Both sides of what is broken, for people, as they are now.
         CASE WHEN v.class LIKE 'D%' THEN jsonb_strip_nulls(jsonb_build_object(
           'act_minor', nullif(v.act_minor, 0),
           'also', nullif(btrim(replace(v.also, v.class || ' ', '')), ''),
           'order', CASE WHEN f.order_id IS NOT NULL THEN jsonb_build_object('status', f.status,
                      'amount_minor', f.amount_minor, 'currency', f.currency, 'payment_ref', f.payment_ref,
                      'refunded_minor', f.ours_minor, 'workflow', f.workflow) END,
           'charges', k.charges)) END AS details
    FROM verdicts v CROSS JOIN terms t
    LEFT JOIN order_facts f ON f.order_id = v.order_id AND v.unit LIKE 'order:%' AND v.class LIKE 'D%'
    LEFT JOIN (
      SELECT c.unit, jsonb_agg(jsonb_build_object('id', c.charge_id, 'status', c.status, 'amount_minor', c.amount_minor,
               'captured_minor', c.captured_minor, 'refunded_minor', c.refunded_minor, 'currency', c.currency,
               'disputed_minor', c.disputed_minor + c.lost_minor, 'created_at', c.created_at)
               ORDER BY c.created_at, c.charge_id) FILTER (WHERE c.place <= 20) AS charges
        FROM (SELECT q.*, row_number() OVER (PARTITION BY q.unit ORDER BY q.created_at, q.charge_id) AS place
                FROM (SELECT a.*, CASE WHEN a.link = 'linked' THEN makegood.order_unit(a.first_order) ELSE 'charge:' || a.charge_id END AS unit
                        FROM charge_facts a) AS q
               WHERE q.unit IN (SELECT w.unit FROM verdicts w WHERE w.class LIKE 'D%')) AS c
       GROUP BY c.unit) AS k ON k.unit = v.unit
  UNION ALL
  SELECT s.unit, NULL, s.charge_id, NULL, s.currency, s.class, NULL, s.at_risk_minor, s.remedy, s.due_at,
         s.class = 'PENDING', s.details
    FROM side_verdicts s;
  ANALYZE judged (unit, class);
  PERFORM makegood.sum_plain(p_run);
  PERFORM makegood.remember_units(p_run.id);
  v_opened := makegood.open_findings(p_run.id);
  v_closed := makegood.close_findings(p_run);
  INSERT INTO work (looked_at, opened, closed)
  SELECT (SELECT count(*) FROM judged) + (SELECT coalesce(sum(p.charges), 0) FROM plain_sums p), v_opened, v_closed;
  IF p_counts THEN
    PERFORM makegood.add_up(p_run);
  END IF;
  DROP TABLE judged, plain_sums;
END
$$;
COMMENT ON FUNCTION makegood.judge_all(makegood.reconciliation_runs, boolean) IS
  'From what was seen to verdicts, findings and, where asked, totals.';

-- Why a collection cannot be relied upon; null where it can. What somebody fetches at this moment, or died over, is not
-- complete: how far it came, nobody knows.
CREATE OR REPLACE FUNCTION makegood.source_fault(s makegood.provider_sync, p_terms jsonb, p_at timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN s.error IS NOT NULL THEN s.error
              WHEN s.lease_owner IS NOT NULL THEN 'is being fetched, or a fetch of it was broken off'
              WHEN s.watermark IS NULL AND s.fetched_at IS NULL AND s.fence = 0
                THEN 'comes as files, and nobody said up to when they are complete (--complete-until)'
              WHEN s.watermark IS NULL THEN 'was never fetched completely'
              WHEN s.watermark < p_at - make_interval(secs => (coalesce(
                     CASE WHEN s.fetched_at IS NULL THEN p_terms->>'files_stale_after_seconds' END,
                     p_terms->>'stale_after_seconds'))::double precision)
                THEN format('is complete only up to %s', s.watermark) END
$$;
COMMENT ON FUNCTION makegood.source_fault(makegood.provider_sync, jsonb, timestamptz) IS
  'Why a collection of the provider''s books is not complete, or too old, at a time; null where it is neither.';

-- A source that cannot be trusted is a finding too, and closes by itself.
CREATE OR REPLACE FUNCTION makegood.judge_sources(p_run makegood.reconciliation_runs)
RETURNS TABLE (unit text, charge_id text, currency text, class text, at_risk_minor bigint, remedy text, due_at timestamptz, details jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT format('source:%s/%s', s.provider, s.collection), NULL::text, NULL::text,
         CASE WHEN f.fault IS NULL THEN 'MATCHED' ELSE 'D32' END,
         0::bigint, 'human', NULL::timestamptz, jsonb_build_object('watermark', s.watermark, 'error', f.fault)
    FROM makegood.provider_sync s
   CROSS JOIN LATERAL (SELECT makegood.source_fault(s, p_run.terms, p_run.started_at) AS fault) AS f
$$;
COMMENT ON FUNCTION makegood.judge_sources(makegood.reconciliation_runs) IS 'D32 for each collection that is not complete or too old.';

CREATE OR REPLACE FUNCTION makegood.remember_units(p_run_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM makegood.reconciliation_units AS u USING judged j WHERE u.unit = j.unit AND NOT j.kept;
  -- A charge that has found its order, and an order that is none of ours.
  DELETE FROM makegood.reconciliation_units AS u USING charge_facts c
   WHERE u.unit = 'charge:' || c.charge_id AND c.link = 'linked';
  -- A charge that names another order than the one it pays: should that order come, it has to find the charge.
  DELETE FROM makegood.reconciliation_units AS u USING charge_facts c WHERE u.unit = 'name:' || c.charge_id;
  INSERT INTO makegood.reconciliation_units (unit, order_id, charge_id, class, run_id)
  SELECT 'name:' || c.charge_id, c.order_ref, c.charge_id, 'MATCHED', p_run_id
    FROM charge_facts c WHERE c.link = 'linked' AND c.order_ref <> c.first_order;
  DELETE FROM makegood.reconciliation_units AS u USING terms t
   WHERE u.due_at <= t.due_before AND u.unit = makegood.order_unit(u.order_id)
     AND NOT EXISTS (SELECT FROM seen_orders o WHERE o.order_id = u.order_id);
  INSERT INTO makegood.reconciliation_units AS u (unit, order_id, charge_id, class, due_at, run_id)
  SELECT j.unit, j.order_id, j.charge_id, j.class, j.due_at, p_run_id FROM judged j WHERE j.kept
  ON CONFLICT (unit) DO UPDATE SET order_id = excluded.order_id, charge_id = excluded.charge_id, class = excluded.class,
                                   due_at = excluded.due_at, run_id = excluded.run_id
   WHERE (u.order_id, u.charge_id, u.class, u.due_at) IS DISTINCT FROM
         (excluded.order_id, excluded.charge_id, excluded.class, excluded.due_at);
END
$$;
COMMENT ON FUNCTION makegood.remember_units(uuid) IS 'Keeps the verdicts on everything that is not plainly matched.';

-- What was closed is opened again in its own row, and so is what was ignored for long enough. Returns how many are new
-- or open again.
CREATE OR REPLACE FUNCTION makegood.open_findings(p_run_id uuid) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_now timestamptz := (SELECT q.now_at FROM terms q);
  v_reopened bigint;
  v_new bigint;
BEGIN
  WITH again AS MATERIALIZED (
    SELECT f.id, f.state, f.class FROM judged j
      JOIN makegood.reconciliation_findings f ON f.unit = j.unit AND f.class = j.class
     WHERE f.state = 'resolved' OR (f.state = 'ignored' AND f.ignored_until <= v_now)
       FOR UPDATE OF f
  ), reopened AS (
    UPDATE makegood.reconciliation_findings AS f
       SET state = 'open', reopened = f.reopened + (a.state = 'resolved')::integer, resolved_at = NULL, resolution = NULL,
           ignored_until = NULL,
           -- Broken again is seen anew: what is to be seen twice before it is acted upon is counted from here.
           runs_seen = CASE a.state WHEN 'resolved' THEN 1 ELSE f.runs_seen END,
           last_seen_run = CASE a.state WHEN 'resolved' THEN p_run_id ELSE f.last_seen_run END
      FROM again a WHERE f.id = a.id
  ), told AS (
    INSERT INTO makegood.reconciliation_history (finding_id, from_state, to_state, class, changed_by, reason, run_id)
    SELECT a.id, a.state, 'open', a.class, 'run', CASE a.state WHEN 'resolved' THEN 'it broke again' ELSE 'no longer ignored' END,
           p_run_id FROM again a
    RETURNING 1
  )
  SELECT count(*) INTO v_reopened FROM told;
  WITH put AS (
    INSERT INTO makegood.reconciliation_findings AS f (
      id, unit, class, order_id, charge_id, customer_ref, amount_at_risk_minor, currency, remedy, details,
      first_seen_run, last_seen_run, first_seen_at, last_seen_at)
    SELECT gen_random_uuid(), j.unit, j.class, j.order_id, j.charge_id, j.customer_ref, j.at_risk_minor, j.currency,
           j.remedy, coalesce(j.details, '{}'), p_run_id, p_run_id, t, t
      FROM judged j WHERE j.class LIKE 'D%'
    ON CONFLICT (unit, class) DO UPDATE
       SET last_seen_run = p_run_id, last_seen_at = t, charge_id = excluded.charge_id,
           runs_seen = f.runs_seen + (f.last_seen_run <> p_run_id)::integer, customer_ref = excluded.customer_ref,
           amount_at_risk_minor = excluded.amount_at_risk_minor, currency = excluded.currency,
           remedy = excluded.remedy, details = excluded.details
    RETURNING f.first_seen_run = p_run_id AND f.first_seen_at = t AS is_new
  )
  SELECT count(*) FILTER (WHERE p.is_new) INTO v_new FROM put p;
  RETURN v_reopened + v_new;
END
$$;
COMMENT ON FUNCTION makegood.open_findings(uuid) IS 'Opens, sees again or reopens a finding for every broken unit.';

-- What is no longer so. Where the verdict is pending, a finding stays for as long as its own rule is broken.
CREATE OR REPLACE FUNCTION makegood.close_findings(p_run makegood.reconciliation_runs) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_all boolean := to_regclass('pg_temp.everything') IS NOT NULL;
  v_closed bigint;
BEGIN
  WITH gone AS MATERIALIZED (
    SELECT f.id, f.state, f.class, j.class AS now_class,
           -- Its refund may be there before its answer is here. That something else has changed is no refund.
           f.state = 'remedying' AND EXISTS (
             SELECT FROM makegood.reconciliation_remedies r JOIN makegood.provider_refunds q
                 ON q.charge_id = r.charge_id AND (q.id = r.refund_ref OR q.compensation_ref = r.id::text)
              WHERE r.finding_id = f.id AND q.status IN ('succeeded', 'pending')) AS remedied
      FROM makegood.reconciliation_findings f
      LEFT JOIN judged j ON j.unit = f.unit
     WHERE f.state <> 'resolved'
       AND CASE WHEN j.class = 'PENDING' THEN j.breaks NOT LIKE '%' || f.class || '%'
                WHEN j.unit IS NOT NULL THEN j.class <> f.class
                WHEN f.unit LIKE 'charge:%' THEN v_all OR EXISTS (
                  SELECT FROM charge_facts c WHERE 'charge:' || c.charge_id = f.unit)
                ELSE v_all AND f.unit LIKE 'order:%' END
       FOR UPDATE OF f
  ), closed AS (
    UPDATE makegood.reconciliation_findings AS f
       SET state = 'resolved', resolved_at = t, ignored_until = NULL,
           resolution = CASE WHEN g.remedied THEN 'remedied'
                             WHEN g.now_class LIKE 'D%' THEN 'superseded by ' || g.now_class ELSE 'late_arrival' END
      FROM gone g WHERE f.id = g.id
  ), told AS (
    INSERT INTO makegood.reconciliation_history (finding_id, from_state, to_state, class, changed_by, reason, run_id)
    SELECT g.id, g.state, 'resolved', CASE WHEN g.now_class LIKE 'D%' OR g.remedied THEN g.class ELSE 'D28' END, 'run',
           CASE WHEN g.remedied THEN 'the remedy shows in the provider''s books'
                WHEN g.now_class LIKE 'D%' THEN format('it is %s now', g.now_class) ELSE 'both sides agree now' END, p_run.id
      FROM gone g
    RETURNING 1
  )
  SELECT count(*) INTO v_closed FROM told;
  RETURN v_closed;
END
$$;
COMMENT ON FUNCTION makegood.close_findings(makegood.reconciliation_runs) IS
  'Closes findings whose units match now or broke another way (D28), with their history.';

-- What the run''s charges come to. The provider''s side is summed up by itself, so that the sums can disagree.
CREATE OR REPLACE FUNCTION makegood.add_up(p_run makegood.reconciliation_runs) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM makegood.reconciliation_totals AS r WHERE r.run_id = p_run.id;
  INSERT INTO makegood.reconciliation_totals (run_id, currency, bucket, charges, amount_minor)
  SELECT p_run.id, b.currency, b.bucket, sum(b.charges), sum(b.amount_minor)
    FROM (SELECT c.currency, CASE v.class WHEN 'MATCHED' THEN 'matched' WHEN 'PENDING' THEN 'pending' ELSE v.class END AS bucket,
                 count(*) AS charges, sum(c.captured_minor) AS amount_minor
            FROM charge_facts c
            JOIN verdicts v ON v.unit = CASE WHEN c.link = 'linked' THEN makegood.order_unit(c.first_order) ELSE 'charge:' || c.charge_id END
           GROUP BY 1, 2
          UNION ALL
          SELECT p.currency, 'matched', p.charges, p.amount_minor FROM plain_sums p) AS b
   GROUP BY 1, 2, 3 HAVING sum(b.charges) <> 0 OR sum(b.amount_minor) <> 0;
  IF to_regclass('pg_temp.everything') IS NOT NULL THEN
    CREATE TEMPORARY TABLE provider_sums ON COMMIT DROP AS
    SELECT c.currency, count(*) AS charges, sum(c.captured_minor) AS amount_minor FROM makegood.provider_charges c GROUP BY 1;
  ELSE
    CREATE TEMPORARY TABLE provider_sums ON COMMIT DROP AS
    SELECT s.currency, count(*) AS charges, sum(s.captured_minor) AS amount_minor
      FROM (SELECT c.currency, c.id, c.captured_minor FROM seen_charges c
            UNION
            SELECT p.currency, p.charge_id, p.amount_minor FROM plainly p WHERE p.clean AND p.charge_id IS NOT NULL) AS s
     GROUP BY 1;
  END IF;
  INSERT INTO makegood.reconciliation_totals (run_id, currency, bucket, charges, amount_minor)
  SELECT p_run.id, s.currency, 'provider', s.charges, s.amount_minor FROM provider_sums s;
END
$$;
COMMENT ON FUNCTION makegood.add_up(makegood.reconciliation_runs) IS
  'The run''s totals per currency: provider, matched, pending and each class.';

-- What was set aside as plain, per currency. A full run has only sums, and takes out of them again what it looked at
-- closely after all, by the same test.
CREATE OR REPLACE FUNCTION makegood.sum_plain(p_run makegood.reconciliation_runs) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_live boolean := (SELECT t.livemode FROM terms t);
BEGIN
  CREATE TEMPORARY TABLE plain_sums (currency text, charges bigint, amount_minor numeric) ON COMMIT DROP;
  IF to_regclass('pg_temp.everything') IS NULL THEN
    INSERT INTO plain_sums
    SELECT p.currency, sum(p.charges), sum(p.amount_minor) FROM plainly p
     WHERE p.clean AND p.charge_id IS NOT NULL AND NOT EXISTS (SELECT FROM seen_charges c WHERE c.id = p.charge_id)
     GROUP BY 1;
    RETURN;
  END IF;
  INSERT INTO plain_sums
  SELECT e.currency, e.charges, e.amount_minor FROM everything e WHERE e.charges > 0
  UNION ALL
  SELECT o.currency, -count(*), -sum(o.captured_minor) FROM others o WHERE o.payment_ref IS NOT NULL GROUP BY 1
  UNION ALL
  SELECT c.currency, -count(*), -sum(c.captured_minor)
    FROM seen_charges c LEFT JOIN seen_orders o ON o.payment_ref = c.payment_ref
   WHERE coalesce(makegood.is_plain_pair(o.order_id, o.status, o.amount_minor, o.currency, o.refunded_minor, c.plain,
                    c.given_back, c.order_ref, c.captured_minor, c.currency, c.livemode, v_live)
                  AND (c.order_ref IS NOT NULL OR c.payment_ref NOT IN (
                    SELECT x.payment_ref FROM seen_orders x WHERE x.payment_ref IS NOT NULL
                     GROUP BY 1 HAVING count(*) > 1)), false)
         OR makegood.is_nothing(o.order_id, o.status, o.refunded_minor, c.id, c.status)
   GROUP BY 1;
END
$$;
COMMENT ON FUNCTION makegood.sum_plain(makegood.reconciliation_runs) IS 'The sums of plain pairs that were not looked at closely.';

-- Rows that came twice in one input were dropped when they came; here they are written down and closed at once (D09).
CREATE OR REPLACE FUNCTION makegood.record_duplicates(p_run makegood.reconciliation_runs) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO makegood.reconciliation_findings AS f (
    id, unit, class, state, charge_id, amount_at_risk_minor, remedy, details, first_seen_run, last_seen_run,
    first_seen_at, last_seen_at, resolved_at, resolution)
  SELECT gen_random_uuid(), format('row:%s/%s/%s', d.provider, d.collection, d.id), 'D09', 'resolved',
         CASE WHEN d.collection = 'charges' THEN d.id END, 0, 'record', jsonb_build_object('source', d.source),
         p_run.id, p_run.id, d.seen_at, d.seen_at, p_run.started_at, 'recorded'
    FROM makegood.provider_duplicates d
   WHERE d.seen_at > coalesce((SELECT max(r.started_at) FROM makegood.reconciliation_runs r
                                WHERE r.state = 'matched' AND r.started_at < p_run.started_at), '-infinity')
  ON CONFLICT (unit, class) DO UPDATE
     SET last_seen_run = excluded.last_seen_run, last_seen_at = excluded.last_seen_at, details = excluded.details,
         runs_seen = f.runs_seen + (f.last_seen_run <> excluded.last_seen_run)::integer
$$;
COMMENT ON FUNCTION makegood.record_duplicates(makegood.reconciliation_runs) IS
  'Writes down the rows that came twice since the last run (D09), closed.';
