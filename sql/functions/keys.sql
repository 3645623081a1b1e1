-- Idempotency keys and their recovery points:
--   intent    the effect is decided, nothing was sent
--   sent      it may have happened
--   known     the answer is here, the workflow does not have it yet
--   recorded  the answer and the state it led to are committed together

-- Marks keys as sent, right before the wire. The same key with other parameters is refused here.
CREATE OR REPLACE FUNCTION makegood.send_keys(p_window_seconds double precision, p_items jsonb)
RETURNS TABLE (key text, verdict text, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_sent text[];
BEGIN
  WITH sent AS (
    INSERT INTO makegood.idempotency_keys AS k (key, operation, request_hash, status, first_sent_at, created_at, expires_at)
    SELECT i.key, i.operation, decode(i.request_hash, 'hex'), 'sent', t, t, t + interval '30 days'
      FROM jsonb_to_recordset(p_items) AS i(key text, operation text, request_hash text)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
       SET status = 'sent', request_hash = EXCLUDED.request_hash, first_sent_at = coalesce(k.first_sent_at, t)
     WHERE k.operation = EXCLUDED.operation
       AND (k.status = 'intent'
            OR (k.status = 'sent' AND k.request_hash = EXCLUDED.request_hash
                AND k.first_sent_at > t - make_interval(secs => p_window_seconds)))
    RETURNING k.key
  )
  SELECT array_agg(s.key) INTO v_sent FROM sent s;

  -- A second statement, with a fresh snapshot: a late worker's answer may have come while we waited for its row.
  -- Only keys that may not go are looked up again.
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.*, s.key IS NOT NULL AS sent
      FROM jsonb_to_recordset(p_items) AS i(key text, operation text, request_hash text)
      LEFT JOIN unnest(v_sent) AS s(key) ON s.key = i.key
  )
  SELECT i.key,
         CASE WHEN i.sent THEN 'go'
              WHEN k.operation <> i.operation OR k.request_hash <> decode(i.request_hash, 'hex') THEN 'conflict'
              WHEN k.status IN ('known', 'recorded') THEN 'known'
              ELSE 'expired' END,
         CASE WHEN NOT i.sent THEN k.response END
    FROM items i
    LEFT JOIN makegood.idempotency_keys k
           ON k.key = i.key AND k.key = ANY (ARRAY(SELECT b.key FROM items b WHERE NOT b.sent));
END
$$;

-- Stores answers: `recorded` for workflows whose state moved in this transaction, `known` for the others.
CREATE OR REPLACE FUNCTION makegood.answer_keys(p_recorded uuid[], p_items jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  WITH items AS MATERIALIZED (
    SELECT i.* FROM jsonb_to_recordset(p_items) AS i(id uuid, key text, response jsonb) WHERE i.response IS NOT NULL
  )
  UPDATE makegood.idempotency_keys k
     SET status = CASE WHEN r.id IS NOT NULL THEN 'recorded' ELSE 'known' END,
         response = coalesce(k.response, i.response), caller = NULL, caller_until = NULL
    FROM items i
    LEFT JOIN unnest(p_recorded) AS r(id) ON r.id = i.id
   WHERE k.key = i.key AND k.first_sent_at IS NOT NULL
     AND (k.status = 'sent' OR (k.status = 'known' AND r.id IS NOT NULL))
     AND k.key = ANY (ARRAY(SELECT b.key FROM items b))
$$;

-- One key for a caller outside any workflow. Of many concurrent callers exactly one is told `go`; the
-- others are told `busy` until it answers or its time runs out, then `known` with the same answer.
CREATE OR REPLACE FUNCTION makegood.take_key(
  p_key text, p_operation text, p_request_hash bytea, p_caller text, p_call_seconds double precision,
  p_window_seconds double precision)
RETURNS TABLE (verdict text, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  k makegood.idempotency_keys;
BEGIN
  INSERT INTO makegood.idempotency_keys (key, operation, request_hash, status, expires_at)
  VALUES (p_key, p_operation, p_request_hash, 'intent', t + interval '30 days')
  ON CONFLICT DO NOTHING;
  UPDATE makegood.idempotency_keys AS u
     SET status = 'sent', first_sent_at = coalesce(u.first_sent_at, t), caller = p_caller,
         caller_until = t + make_interval(secs => p_call_seconds)
   WHERE u.key = p_key AND u.operation = p_operation AND u.request_hash = p_request_hash
     AND u.status IN ('intent', 'sent') AND (u.caller_until IS NULL OR u.caller_until <= t)
     AND (u.first_sent_at IS NULL OR u.first_sent_at > t - make_interval(secs => p_window_seconds));
  IF FOUND THEN
    RETURN QUERY SELECT 'go', NULL::jsonb;
    RETURN;
  END IF;
  SELECT * INTO k FROM makegood.idempotency_keys AS r WHERE r.key = p_key;
  RETURN QUERY SELECT
    CASE WHEN k.operation <> p_operation OR k.request_hash <> p_request_hash THEN 'conflict'
         WHEN k.status IN ('known', 'recorded') THEN 'known'
         WHEN k.caller_until > t THEN 'busy'
         WHEN k.first_sent_at <= t - make_interval(secs => p_window_seconds) THEN 'expired'
         ELSE 'busy' END,  -- given up between our two statements: ask again
    k.response;
END
$$;
COMMENT ON FUNCTION makegood.take_key(text, text, bytea, text, double precision, double precision) IS
  'Asks to make one outside call under a key: go, busy, known, expired or conflict.';

-- The answer of that call. The first answer stays, whoever brings a second. No workflow's state has to
-- follow, so it is recorded with this.
CREATE OR REPLACE FUNCTION makegood.answer_key(p_key text, p_response jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_response jsonb;
BEGIN
  UPDATE makegood.idempotency_keys SET status = 'recorded', response = p_response, caller = NULL, caller_until = NULL
   WHERE key = p_key AND status = 'sent';
  SELECT response INTO v_response FROM makegood.idempotency_keys WHERE key = p_key;
  RETURN v_response;
END
$$;

-- The call ended without an answer: another caller may try at once, under the same key.
CREATE OR REPLACE FUNCTION makegood.give_up_key(p_key text, p_caller text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.idempotency_keys SET caller = NULL, caller_until = NULL
   WHERE key = p_key AND caller = p_caller AND status = 'sent'
$$;

-- Forgets keys past their time, at most p_batch. One whose effect is not recorded yet is never forgotten.
CREATE OR REPLACE FUNCTION makegood.forget_keys(p_batch integer DEFAULT 10000) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH old AS MATERIALIZED (
    SELECT key FROM makegood.idempotency_keys
     WHERE expires_at <= clock_timestamp() AND status = 'recorded' LIMIT p_batch FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM makegood.idempotency_keys k USING old WHERE k.key = old.key RETURNING 1
  )
  SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION makegood.forget_keys(integer) IS 'Deletes recorded keys past their expiry, bounded; returns how many.';
COMMENT ON FUNCTION makegood.send_keys(double precision, jsonb) IS 'Marks keys as sent right before the wire: items {key, operation, request_hash}.';
COMMENT ON FUNCTION makegood.answer_keys(uuid[], jsonb) IS 'Stores the answers of calls made for workflows: items {id, key, response}.';
COMMENT ON FUNCTION makegood.answer_key(text, jsonb) IS 'Stores the answer of a call made outside any workflow; returns the answer that counts.';
COMMENT ON FUNCTION makegood.give_up_key(text, text) IS 'A call ended without an answer: another caller may try under the same key.';
