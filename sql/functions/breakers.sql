-- A provider that is down is left alone: its row here is the breaker of all workers. While it is open nobody
-- calls; when its time has come exactly one caller is the probe, and what the probe meets decides.

-- A worker has seen it down. Opens a closed breaker; opens it again when the worker's own probe failed, and then
-- waits longer. The second failed probe is worth an alert: a short hiccup is not.
CREATE OR REPLACE FUNCTION makegood.trip_breaker(
  p_provider text, p_worker text, p_error text, p_base_seconds double precision, p_cap_seconds double precision)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  b makegood.breakers;
BEGIN
  INSERT INTO makegood.breakers AS k (provider, state, opened_at, retry_at, error, updated_at)
  VALUES (p_provider, 'open', t, t + make_interval(secs => p_base_seconds), left(p_error, 2000), t)
  ON CONFLICT (provider) DO UPDATE
     SET state = 'open', opened_at = coalesce(k.opened_at, t),
         failed_probes = CASE k.state WHEN 'closed' THEN 0 ELSE k.failed_probes + 1 END,
         retry_at = t + make_interval(secs => least(p_cap_seconds, p_base_seconds
           * 2 ^ CASE k.state WHEN 'closed' THEN 0 ELSE least(k.failed_probes + 1, 30) END)),
         probe_by = NULL, probe_until = NULL, error = EXCLUDED.error, updated_at = t
   WHERE k.state = 'closed' OR (k.state = 'half_open' AND k.probe_by = p_worker)
  RETURNING * INTO b;
  IF b.failed_probes = 2 THEN
    INSERT INTO makegood.outbox (topic, key, payload)
    VALUES ('alert', format('breaker-%s-%s', p_provider, extract(epoch FROM b.opened_at)), jsonb_build_object(
      'kind', 'provider_down', 'provider', p_provider, 'since', b.opened_at, 'error', b.error))
    ON CONFLICT DO NOTHING;
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.trip_breaker(text, text, text, double precision, double precision) IS
  'Opens the breaker of a provider that a worker has seen down, or opens it again after its probe failed.';

-- Asks to be the one probe. True for exactly one caller; a probe that said nothing in time is given up.
CREATE OR REPLACE FUNCTION makegood.take_probe(p_provider text, p_worker text, p_probe_seconds double precision)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  UPDATE makegood.breakers
     SET state = 'half_open', retry_at = NULL, probe_by = p_worker,
         probe_until = t + make_interval(secs => p_probe_seconds), updated_at = t
   WHERE provider = p_provider
     AND ((state = 'open' AND retry_at <= t) OR (state = 'half_open' AND probe_until <= t));
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.take_probe(text, text, double precision) IS
  'True for the one caller that may try a provider whose breaker is open.';

-- The probe came to no call after all (its order was cancelled, or somebody else's): another may go at once.
CREATE OR REPLACE FUNCTION makegood.return_probe(p_provider text, p_worker text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  UPDATE makegood.breakers SET state = 'open', retry_at = t, probe_by = NULL, probe_until = NULL, updated_at = t
   WHERE provider = p_provider AND state = 'half_open' AND probe_by = p_worker;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.return_probe(text, text) IS 'Gives back a probe that came to no call.';

-- The probe was answered. Only the probe's own worker closes: a late answer from before says nothing of now.
CREATE OR REPLACE FUNCTION makegood.close_breaker(p_provider text, p_worker text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.breakers
     SET state = 'closed', opened_at = NULL, retry_at = NULL, failed_probes = 0, probe_by = NULL, probe_until = NULL,
         updated_at = clock_timestamp()
   WHERE provider = p_provider AND state = 'half_open' AND probe_by = p_worker;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.close_breaker(text, text) IS 'Calls may go again: the probe of this worker was answered.';

-- Who is down, in seconds by the database's clock: since when, and when somebody may try.
CREATE OR REPLACE FUNCTION makegood.open_breakers()
RETURNS TABLE (provider text, open_seconds double precision, retry_in_seconds double precision, error text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT b.provider, extract(epoch FROM clock_timestamp() - b.opened_at)::double precision,
         -- A probe is mostly answered soon: its answer is waited for, not the end of its time.
         extract(epoch FROM coalesce(b.retry_at - clock_timestamp(),
           least(b.probe_until - clock_timestamp(), interval '2 seconds')))::double precision, b.error
    FROM makegood.breakers b WHERE b.state <> 'closed'
$$;
COMMENT ON FUNCTION makegood.open_breakers() IS 'Providers that are down, since how long, and in how many seconds one may try.';
