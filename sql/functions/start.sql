-- Starting a workflow: once per (type, entity), however often it is asked for.

-- Time-ordered (version 7) ids, so that new rows land on the same index pages.
CREATE OR REPLACE FUNCTION makegood.new_id() RETURNS uuid
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT encode(set_byte(v.bytes, 6, (get_byte(v.bytes, 6) & 15) | 112), 'hex')::uuid
    FROM (SELECT overlay(uuid_send(gen_random_uuid())
                 PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                 FROM 1 FOR 6) AS bytes) AS v
$$;

-- Starts many in one statement. With p_worker the new ones are leased to it at once, so that whoever
-- starts a checkout can carry on without claiming it first.
-- Verdicts: started, existing (same parameters), conflict (other parameters), unknown_type.
CREATE OR REPLACE FUNCTION makegood.start_workflows(
  p_triggered_by text, p_worker text, p_lease_seconds double precision, p_items jsonb)
RETURNS TABLE (workflow_type text, entity_id text, verdict text, id uuid, current_state text, fence bigint,
               created_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
  v_started uuid[];
BEGIN
  WITH items AS MATERIALIZED (
    SELECT i.*, s.state, s.stuck_after
      FROM jsonb_to_recordset(p_items) AS i(
        workflow_type text, entity_id text, context jsonb, amount_minor bigint, currency text, traceparent text)
      JOIN makegood.workflow_states s ON s.workflow_type = i.workflow_type AND s.kind = 'initial'
  ), started AS (
    INSERT INTO makegood.workflow_executions (
      id, workflow_type, entity_id, current_state, context, created_at, updated_at, amount_minor, currency,
      next_attempt_at, deadline_at, fence, lease_owner, lease_until, traceparent, last_seq, start_hash)
    SELECT makegood.new_id(), i.workflow_type, i.entity_id, i.state, coalesce(i.context, '{}'), t, t,
           i.amount_minor, i.currency, t, t + i.stuck_after, (p_worker IS NOT NULL)::int, p_worker,
           CASE WHEN p_worker IS NOT NULL THEN t + make_interval(secs => p_lease_seconds) END,
           i.traceparent, 1, makegood.start_hash(i.context, i.amount_minor, i.currency)
      FROM items i
    ON CONFLICT ON CONSTRAINT workflow_executions_entity_id_workflow_type_key DO NOTHING
    RETURNING workflow_executions.id, workflow_executions.entity_id, workflow_executions.current_state
  ), logged AS (
    INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, to_state, triggered_by, transitioned_at)
    SELECT s.id, s.entity_id, 1, s.current_state, p_triggered_by, t FROM started s
    RETURNING workflow_id
  )
  SELECT array_agg(l.workflow_id) INTO v_started FROM logged l;

  -- A second statement, with a fresh snapshot: it sees what another starter committed in the meantime.
  RETURN QUERY
  SELECT i.workflow_type, i.entity_id,
         -- The hash first: of two starts of one entity in this very call, only one can have got its parameters.
         CASE WHEN e.id IS NULL THEN 'unknown_type'
              WHEN e.start_hash <> makegood.start_hash(i.context, i.amount_minor, i.currency) THEN 'conflict'
              WHEN n.id IS NOT NULL THEN 'started'
              ELSE 'existing' END,
         e.id, e.current_state, e.fence, e.created_at
    FROM jsonb_to_recordset(p_items) AS i(
      workflow_type text, entity_id text, context jsonb, amount_minor bigint, currency text)
    LEFT JOIN makegood.workflow_executions e ON e.workflow_type = i.workflow_type AND e.entity_id = i.entity_id
    LEFT JOIN unnest(v_started) AS n(id) ON n.id = e.id;
END
$$;
COMMENT ON FUNCTION makegood.start_workflows(text, text, double precision, jsonb) IS
  'Starts many workflows: items {workflow_type, entity_id, context, amount_minor, currency, traceparent}.';

-- What a start asked for, so that asking again for something else is noticed.
CREATE OR REPLACE FUNCTION makegood.start_hash(p_context jsonb, p_amount_minor bigint, p_currency text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT sha256(convert_to(jsonb_build_array(coalesce(p_context, '{}'), p_amount_minor, p_currency)::text, 'UTF8'))
$$;

-- Starts one, for a service in any language. The same call again returns the same id.
CREATE OR REPLACE FUNCTION makegood.start_workflow(
  p_workflow_type text, p_entity_id text, p_context jsonb DEFAULT '{}', p_amount_minor bigint DEFAULT NULL,
  p_currency text DEFAULT NULL, p_triggered_by text DEFAULT session_user)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v record;
BEGIN
  SELECT * INTO v FROM makegood.start_workflows(p_triggered_by, NULL, NULL, jsonb_build_array(jsonb_build_object(
    'workflow_type', p_workflow_type, 'entity_id', p_entity_id, 'context', p_context,
    'amount_minor', p_amount_minor, 'currency', p_currency)));
  IF v.verdict = 'unknown_type' THEN
    RAISE EXCEPTION 'unknown workflow type %', p_workflow_type USING ERRCODE = 'MG009',
      HINT = 'Register it first: makegood.register_workflow().';
  ELSIF v.verdict = 'conflict' THEN
    RAISE EXCEPTION '% % was already started with other parameters', p_workflow_type, p_entity_id
      USING ERRCODE = 'MG010';
  END IF;
  RETURN v.id;
END
$$;
COMMENT ON FUNCTION makegood.start_workflow(text, text, jsonb, bigint, text, text) IS
  'Starts one workflow and returns its id; the same call again returns the same id, other parameters are refused.';
COMMENT ON FUNCTION makegood.new_id() IS 'A time-ordered (version 7) uuid, on every supported PostgreSQL.';
COMMENT ON FUNCTION makegood.start_hash(jsonb, bigint, text) IS 'A hash of what a start asked for.';
