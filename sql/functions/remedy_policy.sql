-- What people decide about remedies: which classes are acted upon, how much may go back, and the kill switch. Each change
-- has who and why, and its line in operator_actions in the same transaction.

-- The kill switch. Whoever starts a remedy holds the row for reading until that is committed: when this returns, nothing
-- starts any more, and what has started is refused at its check unless its refund is already on the wire.
-- Verdicts: stopped, allowed, unchanged.
CREATE OR REPLACE FUNCTION makegood.switch_remedies(p_stopped boolean, p_actor text, p_reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  UPDATE makegood.remedy_switch AS s
     SET stopped = p_stopped, reason = left(btrim(p_reason), 2000), changed_by = btrim(p_actor), changed_at = clock_timestamp()
   WHERE s.stopped <> p_stopped;
  IF NOT FOUND THEN
    RETURN 'unchanged';
  END IF;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason)
  VALUES (btrim(p_actor), CASE WHEN p_stopped THEN 'stop remedies' ELSE 'allow remedies' END, 'remedies', left(btrim(p_reason), 2000));
  RETURN CASE WHEN p_stopped THEN 'stopped' ELSE 'allowed' END;
END
$$;
COMMENT ON FUNCTION makegood.switch_remedies(boolean, text, text) IS
  'Throws the kill switch of all remedies, with who and why; stopped, allowed or unchanged.';

CREATE OR REPLACE FUNCTION makegood.set_remedy_policy(
  p_environment text, p_class text, p_dry_run boolean, p_actor text, p_reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  INSERT INTO makegood.remedy_policy (environment, class, dry_run, changed_by, changed_at)
  VALUES (p_environment, p_class, p_dry_run, btrim(p_actor), clock_timestamp())
  ON CONFLICT (environment, class) DO UPDATE
     SET dry_run = excluded.dry_run, changed_by = excluded.changed_by, changed_at = excluded.changed_at;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), 'set remedy policy', p_class, left(btrim(p_reason), 2000),
          jsonb_build_object('environment', p_environment, 'class', p_class, 'dry_run', p_dry_run));
END
$$;
COMMENT ON FUNCTION makegood.set_remedy_policy(text, text, boolean, text, text) IS
  'Lets a class be acted upon, or only told about, in one environment, with who and why.';

-- p_caps: any of item_minor, run_count, run_minor, day_count, day_minor, customer_count, customer_minor. What is not
-- given stays; for a currency that had none it is 0.
CREATE OR REPLACE FUNCTION makegood.set_remedy_caps(
  p_environment text, p_currency text, p_caps jsonb, p_actor text, p_reason text)
RETURNS makegood.remedy_caps
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c makegood.remedy_caps;
  v_other text := (SELECT min(k) FROM jsonb_object_keys(p_caps) AS k WHERE k NOT IN (
    'item_minor', 'run_count', 'run_minor', 'day_count', 'day_minor', 'customer_count', 'customer_minor'));
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  IF v_other IS NOT NULL THEN
    RAISE EXCEPTION 'there is no cap %', v_other USING ERRCODE = 'MG011';
  END IF;
  INSERT INTO makegood.remedy_caps VALUES (p_environment, p_currency, 0, 0, 0, 0, 0, 0, 0, btrim(p_actor), clock_timestamp())
  ON CONFLICT DO NOTHING;
  UPDATE makegood.remedy_caps AS r
     SET item_minor = coalesce((p_caps->>'item_minor')::bigint, r.item_minor),
         run_count = coalesce((p_caps->>'run_count')::integer, r.run_count),
         run_minor = coalesce((p_caps->>'run_minor')::bigint, r.run_minor),
         day_count = coalesce((p_caps->>'day_count')::integer, r.day_count),
         day_minor = coalesce((p_caps->>'day_minor')::bigint, r.day_minor),
         customer_count = coalesce((p_caps->>'customer_count')::integer, r.customer_count),
         customer_minor = coalesce((p_caps->>'customer_minor')::bigint, r.customer_minor),
         changed_by = btrim(p_actor), changed_at = clock_timestamp()
   WHERE r.environment = p_environment AND r.currency = p_currency RETURNING * INTO c;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (btrim(p_actor), 'set remedy caps', p_currency, left(btrim(p_reason), 2000), to_jsonb(c) - 'changed_by' - 'changed_at');
  RETURN c;
END
$$;
COMMENT ON FUNCTION makegood.set_remedy_caps(text, text, jsonb, text, text) IS
  'Sets how much may be refunded without a second person in one currency, with who and why; returns the row.';

CREATE OR REPLACE FUNCTION makegood.environment_of(p_terms jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN (p_terms->>'livemode')::boolean THEN 'live' ELSE 'test' END
$$;
COMMENT ON FUNCTION makegood.environment_of(jsonb) IS 'live or test, from the terms of whoever asks.';
