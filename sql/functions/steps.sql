-- The two transactions around an outside call. Each is one statement of the caller, so there is no
-- half-open transaction to die in.

-- Transaction one. Enters the step's state, counts the attempt, stores the key with its request's hash.
-- Verdicts: go (call now), known (a former worker got the answer: use it), expired (the provider may have
-- forgotten the key: look it up), conflict (the key was used with other parameters), cancel, lost.
CREATE OR REPLACE FUNCTION makegood.begin_steps(
  p_worker text, p_lease_seconds double precision, p_key_window_seconds double precision, p_items jsonb)
RETURNS TABLE (id uuid, verdict text, attempt integer, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  v_moved uuid[];
BEGIN
  v_moved := ARRAY(SELECT m.id FROM makegood.move_workflows(p_worker, true, p_lease_seconds, p_items) AS m);
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.*, m.id IS NOT NULL AS moved
      FROM jsonb_to_recordset(p_items) AS i(
        id uuid, fence bigint, step text, key text, operation text, request_hash text)
      LEFT JOIN unnest(v_moved) AS m(id) ON m.id = i.id
  ), opened AS (
    -- Nearly always all of them moved, and need not be written as JSON again.
    SELECT o.* FROM makegood.open_attempts('forward', p_worker, p_key_window_seconds,
      CASE WHEN cardinality(v_moved) = jsonb_array_length(p_items) THEN p_items
           ELSE (SELECT jsonb_agg(to_jsonb(i)) FROM items i WHERE i.moved) END) AS o
  )
  SELECT i.id, CASE WHEN i.moved THEN o.verdict
                    WHEN e.cancel_requested AND e.fence = i.fence AND e.held_at IS NULL THEN 'cancel'
                    ELSE 'lost' END, o.attempt, o.response
    FROM items i LEFT JOIN opened o ON o.id = i.id
    LEFT JOIN makegood.workflow_executions e
           ON e.id = i.id AND e.id = ANY (ARRAY(SELECT b.id FROM items b WHERE NOT b.moved));
END
$$;
COMMENT ON FUNCTION makegood.begin_steps(text, double precision, double precision, jsonb) IS
  'Before the call: items {id, fence, from_state, to_state, step, key, operation, request_hash}; go, known, expired, conflict, cancel or lost.';

-- The keys of calls about to be made, and an open attempt for each that may go.
CREATE OR REPLACE FUNCTION makegood.open_attempts(
  p_kind text, p_worker text, p_key_window_seconds double precision, p_items jsonb)
RETURNS TABLE (id uuid, verdict text, attempt integer, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.id, i.step, s.verdict, s.response
      FROM jsonb_to_recordset(p_items) AS i(id uuid, step text, key text)
      JOIN makegood.send_keys(p_key_window_seconds, p_items) AS s ON s.key = i.key
  ), begun AS (
    INSERT INTO makegood.step_attempts AS a (workflow_id, step, kind, attempt, started_at, worker)
    SELECT i.id, i.step, p_kind, 1 + coalesce((
             SELECT max(b.attempt) FROM makegood.step_attempts b
              WHERE b.workflow_id = i.id AND b.kind = p_kind AND b.step = i.step), 0), t, p_worker
      FROM items i WHERE i.verdict = 'go'
    RETURNING a.workflow_id, a.attempt
  )
  SELECT i.id, i.verdict, b.attempt, i.response FROM items i LEFT JOIN begun b ON b.workflow_id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.open_attempts(text, text, double precision, jsonb) IS
  'Marks keys as sent and opens an attempt for each call that may go: items {id, step, key, operation, request_hash}.';

-- Transaction two, when the step succeeded: state, transition, result, attempt, key and outbox together, and
-- with `via` and `next` also the beginning of the next step, whose verdict comes back as next_verdict.
-- Verdicts: moved, cancel (the last step's answer is kept, but the order is to be undone), lost.
-- The answer of a call is never thrown away: where the state went to somebody else, the key knows it.
CREATE OR REPLACE FUNCTION makegood.finish_steps(
  p_worker text, p_lease_seconds double precision, p_key_window_seconds double precision, p_items jsonb)
RETURNS TABLE (id uuid, verdict text, next_verdict text, attempt integer, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  v_moved uuid[];
  v_states text[];
BEGIN
  SELECT array_agg(m.id), array_agg(m.state) INTO v_moved, v_states
    FROM makegood.move_workflows(p_worker, false, p_lease_seconds, p_items) AS m;
  PERFORM makegood.close_attempts('forward', p_items);
  PERFORM makegood.answer_keys(v_moved, p_items);
  INSERT INTO makegood.outbox (topic, key, payload)
  SELECT o->>'topic', o->>'key', o->'payload'
    FROM jsonb_to_recordset(p_items) AS i(id uuid, outbox jsonb)
    JOIN unnest(v_moved) AS m(id) ON m.id = i.id
    CROSS JOIN LATERAL jsonb_array_elements(i.outbox) AS o
   WHERE i.outbox IS NOT NULL
  ON CONFLICT ON CONSTRAINT outbox_topic_key_key DO NOTHING;
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.*, m.state
      FROM jsonb_to_recordset(p_items) AS i(id uuid, fence bigint, from_state text, via text, to_state text, next jsonb)
      LEFT JOIN unnest(v_moved, v_states) AS m(id, state) ON m.id = i.id
  ), opened AS (
    SELECT o.* FROM makegood.open_attempts('forward', p_worker, p_key_window_seconds,
      (SELECT jsonb_agg(i.next || jsonb_build_object('id', i.id)) FROM items i
        WHERE i.via IS NOT NULL AND i.state = i.to_state)) AS o
  )
  SELECT i.id, CASE WHEN i.state IS NOT NULL THEN 'moved'
                    WHEN e.cancel_requested AND e.fence = i.fence AND e.current_state = i.from_state
                         AND e.held_at IS NULL THEN 'cancel'
                    ELSE 'lost' END, o.verdict, o.attempt, o.response
    FROM items i LEFT JOIN opened o ON o.id = i.id
    LEFT JOIN makegood.workflow_executions e
           ON e.id = i.id AND e.id = ANY (ARRAY(SELECT b.id FROM items b WHERE b.state IS NULL));
END
$$;
COMMENT ON FUNCTION makegood.finish_steps(text, double precision, double precision, jsonb) IS
  'After a call that succeeded: items {id, fence, from_state, via, to_state, step, attempt, outcome, key, response, patch, outbox, next}.';

-- Transaction two, when the outcome is unknown: the attempt is recorded and the workflow waits its turn
-- with the key still sent, or for a person where hold_reason is given. Not progress.
CREATE OR REPLACE FUNCTION makegood.pause_steps(p_items jsonb)
RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  v_ours uuid[];
BEGIN
  PERFORM makegood.close_attempts('forward', p_items);
  v_ours := ARRAY(SELECT makegood.pause_workflows(p_items));
  RETURN QUERY
  SELECT i.id, CASE WHEN o.id IS NOT NULL THEN 'moved' ELSE 'lost' END
    FROM jsonb_to_recordset(p_items) AS i(id uuid) LEFT JOIN unnest(v_ours) AS o(id) ON o.id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.pause_steps(jsonb) IS
  'After a call whose outcome is unknown: items {id, fence, step, attempt, outcome, error_type, error, wait_seconds, attempts_change, hold_reason}.';

-- What became of an attempt. Recorded even by a worker that lost its lease: it did happen.
CREATE OR REPLACE FUNCTION makegood.close_attempts(p_kind text, p_items jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  WITH items AS MATERIALIZED (
    SELECT i.* FROM jsonb_to_recordset(p_items) AS i(
      id uuid, step text, attempt integer, outcome text, error_type text, error text)
  )
  UPDATE makegood.step_attempts a
     SET outcome = i.outcome, error_type = i.error_type, error = left(i.error, 2000), finished_at = clock_timestamp()
    FROM items i
   WHERE a.workflow_id = i.id AND a.kind = p_kind AND a.step = i.step AND a.attempt = i.attempt AND a.outcome IS NULL
     AND a.workflow_id = ANY (ARRAY(SELECT b.id FROM items b))
$$;
COMMENT ON FUNCTION makegood.close_attempts(text, jsonb) IS 'Records how attempts ended: items {id, step, attempt, outcome, error_type, error}.';
