-- Undoing. What is owed is written in the transaction that enters `compensating`; the terminal state
-- comes when all of it is done, and a guard on the table sees to that.

-- Ends the forward path: to `compensating` with one row and one key (intent) per undo, or to `failed`
-- where nothing was done. The failed attempt and its answer are recorded with it.
-- A compensation's id follows from its workflow and step, and so does its key: even a row written twice
-- by some mistake would ask the provider for the same refund.
CREATE OR REPLACE FUNCTION makegood.compensate_workflows(p_worker text, p_items jsonb)
RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_moved uuid[];
BEGIN
  v_moved := ARRAY(SELECT m.id FROM makegood.move_workflows(p_worker, false, 0, p_items) AS m);
  PERFORM makegood.close_attempts('forward', p_items);
  PERFORM makegood.answer_keys(v_moved, p_items);
  WITH plan AS MATERIALIZED (
    SELECT i.id AS workflow_id, c.*
      FROM jsonb_to_recordset(p_items) AS i(id uuid, plan jsonb)
      JOIN unnest(v_moved) AS m(id) ON m.id = i.id
      CROSS JOIN LATERAL jsonb_to_recordset(i.plan) AS c(
        compensation_id uuid, step text, "position" integer, key text, operation text, request_hash text,
        amount_minor bigint, currency text)
  ), keyed AS (
    INSERT INTO makegood.idempotency_keys (key, operation, request_hash, status, created_at, expires_at)
    SELECT p.key, p.operation, decode(p.request_hash, 'hex'), 'intent', t, t + interval '30 days' FROM plan p
    ON CONFLICT DO NOTHING
  )
  INSERT INTO makegood.compensations (
    id, workflow_id, step, "position", next_attempt_at, idempotency_key, amount_minor, currency, created_at)
  SELECT p.compensation_id, p.workflow_id, p.step, p."position", t, p.key, p.amount_minor, p.currency, t FROM plan p;
  RETURN QUERY
  SELECT i.id, CASE WHEN m.id IS NOT NULL THEN 'moved' ELSE 'lost' END
    FROM jsonb_to_recordset(p_items) AS i(id uuid) LEFT JOIN unnest(v_moved) AS m(id) ON m.id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.compensate_workflows(text, jsonb) IS
  'Ends the forward path: items {id, fence, from_state, to_state, metadata, step, attempt, outcome, error_type, error, key, response, plan}.';

-- Before an undo's call. Strictly in reverse: refused while a later step is not undone.
-- Verdicts as of begin_steps.
CREATE OR REPLACE FUNCTION makegood.begin_compensations(
  p_worker text, p_lease_seconds double precision, p_key_window_seconds double precision, p_items jsonb)
RETURNS TABLE (id uuid, verdict text, attempt integer, response jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  v_moved uuid[];
  v_running uuid[];
BEGIN
  v_moved := ARRAY(SELECT m.id FROM makegood.move_workflows(p_worker, true, p_lease_seconds, p_items) AS m);
  WITH running AS (
    UPDATE makegood.compensations c
       SET state = 'running', attempts = c.attempts + 1
      FROM jsonb_to_recordset(p_items) AS i(id uuid, compensation_id uuid)
      JOIN unnest(v_moved) AS m(id) ON m.id = i.id
     WHERE c.id = i.compensation_id AND c.workflow_id = i.id AND c.state IN ('pending', 'running')
       AND c.id = ANY (ARRAY(SELECT b.compensation_id FROM jsonb_to_recordset(p_items) AS b(compensation_id uuid)))
       AND NOT EXISTS (SELECT FROM makegood.compensations l
                        WHERE l.workflow_id = c.workflow_id AND l."position" > c."position" AND l.state <> 'succeeded')
    RETURNING c.workflow_id
  )
  SELECT array_agg(r.workflow_id) INTO v_running FROM running r;
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.*, r.id IS NOT NULL AS running
      FROM jsonb_to_recordset(p_items) AS i(id uuid, step text, key text, operation text, request_hash text)
      LEFT JOIN unnest(v_running) AS r(id) ON r.id = i.id
  ), opened AS (
    SELECT o.* FROM makegood.open_attempts('compensation', p_worker, p_key_window_seconds,
      (SELECT jsonb_agg(to_jsonb(i)) FROM items i WHERE i.running)) AS o
  )
  SELECT i.id, CASE WHEN i.running THEN o.verdict ELSE 'lost' END, o.attempt, o.response
    FROM items i LEFT JOIN opened o ON o.id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.begin_compensations(text, double precision, double precision, jsonb) IS
  'Before an undo: items {id, fence, from_state, to_state, compensation_id, step, key, operation, request_hash}.';

-- After an undo that succeeded.
CREATE OR REPLACE FUNCTION makegood.finish_compensations(p_worker text, p_items jsonb)
RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_moved uuid[];
BEGIN
  v_moved := ARRAY(SELECT m.id FROM makegood.move_workflows(p_worker, false, 0, p_items) AS m);
  PERFORM makegood.close_attempts('compensation', p_items);
  PERFORM makegood.answer_keys(v_moved, p_items);
  UPDATE makegood.compensations c
     SET state = 'succeeded', succeeded_at = t, result = i.response, last_error = NULL
    FROM jsonb_to_recordset(p_items) AS i(id uuid, compensation_id uuid, response jsonb)
    JOIN unnest(v_moved) AS m(id) ON m.id = i.id
   WHERE c.id = i.compensation_id AND c.workflow_id = i.id AND c.state IN ('pending', 'running')
     AND c.id = ANY (ARRAY(SELECT b.compensation_id FROM jsonb_to_recordset(p_items) AS b(compensation_id uuid)));
  RETURN QUERY
  SELECT i.id, CASE WHEN m.id IS NOT NULL THEN 'moved' ELSE 'lost' END
    FROM jsonb_to_recordset(p_items) AS i(id uuid) LEFT JOIN unnest(v_moved) AS m(id) ON m.id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.finish_compensations(text, jsonb) IS
  'After an undo that succeeded: items {id, fence, from_state, to_state, compensation_id, step, attempt, outcome, key, response}.';

-- After an undo that did not succeed: tried again after wait_seconds, or held with its workflow when
-- hold_reason is given. It is never dropped: the workflow stays `compensating`.
CREATE OR REPLACE FUNCTION makegood.pause_compensations(p_items jsonb)
RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_ours uuid[];
BEGIN
  PERFORM makegood.close_attempts('compensation', p_items);
  v_ours := ARRAY(SELECT makegood.pause_workflows(p_items));
  UPDATE makegood.compensations c
     SET state = CASE WHEN i.hold_reason IS NULL THEN 'pending' ELSE 'held' END,
         attempts = greatest(c.attempts + coalesce(i.attempts_change, 0), 0),
         next_attempt_at = t + make_interval(secs => coalesce(i.wait_seconds, 0)),
         last_error = left(concat_ws(': ', i.error_type, i.error), 2000)
    FROM jsonb_to_recordset(p_items) AS i(
      id uuid, compensation_id uuid, wait_seconds double precision, attempts_change integer, hold_reason text,
      error_type text, error text)
    JOIN unnest(v_ours) AS o(id) ON o.id = i.id
   WHERE c.id = i.compensation_id AND c.workflow_id = i.id AND c.state IN ('pending', 'running')
     AND c.id = ANY (ARRAY(SELECT b.compensation_id FROM jsonb_to_recordset(p_items) AS b(compensation_id uuid)));
  RETURN QUERY
  SELECT i.id, CASE WHEN o.id IS NOT NULL THEN 'moved' ELSE 'lost' END
    FROM jsonb_to_recordset(p_items) AS i(id uuid) LEFT JOIN unnest(v_ours) AS o(id) ON o.id = i.id;
END
$$;
COMMENT ON FUNCTION makegood.pause_compensations(jsonb) IS
  'After an undo that did not succeed: items {id, fence, compensation_id, step, attempt, outcome, error_type, error, wait_seconds, attempts_change, hold_reason}.';

-- What is owed per workflow, with the seconds until each is due by the database's clock.
CREATE OR REPLACE FUNCTION makegood.owed_compensations(p_items jsonb)
RETURNS TABLE (id uuid, compensations jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  SELECT c.workflow_id, jsonb_agg(jsonb_build_object(
           'id', c.id, 'step', c.step, 'position', c."position", 'state', c.state, 'attempts', c.attempts,
           'wait_seconds', extract(epoch FROM c.next_attempt_at - clock_timestamp())))
    FROM makegood.compensations c JOIN jsonb_to_recordset(p_items) AS i(id uuid) ON i.id = c.workflow_id
   WHERE c.workflow_id = ANY (ARRAY(SELECT b.id FROM jsonb_to_recordset(p_items) AS b(id uuid)))
   GROUP BY c.workflow_id
$$;
COMMENT ON FUNCTION makegood.owed_compensations(jsonb) IS 'The compensations of workflows: items {id}.';
