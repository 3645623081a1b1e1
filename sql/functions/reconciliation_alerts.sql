-- What people are told of a reconciliation: written once per thing, however often a run is repeated or sees it again.
--   p_above_minor  findings from this much on, in hundredths of their currency's unit: 10000 is 100.00 EUR, 100 JPY
--   p_alarming     classes that are told whatever the amount
CREATE OR REPLACE FUNCTION makegood.alert_reconciliation(p_run_id uuid, p_above_minor bigint, p_alarming text[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_written bigint;
BEGIN
  WITH run AS MATERIALIZED (SELECT * FROM makegood.reconciliation_runs r WHERE r.id = p_run_id),
  alerts AS (
    SELECT 'reconciliation-totals/' || r.id AS key, jsonb_build_object('kind', 'reconciliation_totals', 'run_id', r.id,
             'error', string_agg(format('%s is off by %s in minor units and %s charges', t.currency, t.amount_minor, t.charges),
                                 '; ' ORDER BY t.currency)) AS payload
      FROM run r JOIN (
        SELECT s.currency, sum(CASE s.bucket WHEN 'provider' THEN s.amount_minor ELSE -s.amount_minor END) AS amount_minor,
               sum(CASE s.bucket WHEN 'provider' THEN s.charges ELSE -s.charges END) AS charges
          FROM makegood.reconciliation_totals s WHERE s.run_id = p_run_id GROUP BY s.currency) AS t
        ON t.amount_minor <> 0 OR t.charges <> 0
     GROUP BY r.id
    UNION ALL
    -- Once a day, as long as it lasts.
    SELECT format('reconciliation-stale/%s', (r.started_at AT TIME ZONE 'UTC')::date), jsonb_build_object(
             'kind', 'reconciliation_stale', 'run_id', r.id, 'error', left(r.stale, 1000))
      FROM run r WHERE r.stale IS NOT NULL
    UNION ALL
    SELECT 'reconciliation-missed/' || r.id, jsonb_build_object('kind', 'reconciliation_missed', 'run_id', r.id,
             'error', format('%s verdicts', r.missed))
      FROM run r WHERE r.missed > 0
    UNION ALL
    (SELECT format('finding/%s/%s', f.id, f.reopened), jsonb_build_object('kind', 'finding', 'run_id', p_run_id,
              'finding_id', f.id, 'class', f.class, 'entity_id', coalesce(f.order_id, f.charge_id, f.unit),
              'charge_id', f.charge_id, 'amount_minor', f.amount_at_risk_minor, 'currency', f.currency, 'remedy', f.remedy)
       FROM makegood.reconciliation_findings f LEFT JOIN makegood.currencies c ON c.code = f.currency
      WHERE f.state = 'open' AND f.class <> 'D32'
        AND (f.class = ANY (p_alarming)
             OR f.amount_at_risk_minor * power(10::numeric, 2 - coalesce(c.exponent, 2)) >= p_above_minor)
        AND NOT EXISTS (SELECT FROM makegood.outbox o
                         WHERE o.topic = 'alert' AND o.key = format('finding/%s/%s', f.id, f.reopened))
      ORDER BY f.first_seen_at LIMIT 10000)
  ), written AS (
    INSERT INTO makegood.outbox (topic, key, payload) SELECT 'alert', a.key, a.payload FROM alerts a
    ON CONFLICT (topic, key) DO NOTHING RETURNING 1
  )
  SELECT count(*) INTO v_written FROM written;
  RETURN v_written;
END
$$;
COMMENT ON FUNCTION makegood.alert_reconciliation(uuid, bigint, text[]) IS
  'Writes the alerts of a run: totals that do not add up, a stale source, missed verdicts, large and alarming findings; returns how many are new.';

-- Told twice, it is the same end; one that came to its end after all has ended.
CREATE OR REPLACE FUNCTION makegood.fail_reconciliation(p_run_id uuid, p_error text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.reconciliation_runs AS r
     SET state = 'failed', error = left(p_error, 2000), finished_at = clock_timestamp()
   WHERE r.id = p_run_id AND r.state = 'running';
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.fail_reconciliation(uuid, text) IS
  'Notes why a run did not come to its end; false where it did, or where it is known already.';
