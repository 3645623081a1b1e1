-- How items meet a large table, here and in the other files: `= ANY (their ids)` goes through the index, and
-- a hash join puts them side by side (enable_*). Left alone, the planner, which cannot know how many items
-- there are, keeps a plan from when the table was young and reads all of it later. The items are read from their
-- JSON once per statement (MATERIALIZED): reading five hundred costs as much as finding their rows.

-- The guard. Every change of state in the system goes through move_workflows: the row must still be in
-- the state the caller saw, under the fence the caller was given, and its transition is written with it.

-- Moves many; returns those that were moved and where they are now. A row that is missing from the answer was
-- lost to somebody else, is held, or was asked to be cancelled: the caller re-reads and counts it.
--   from_state = to_state  begins the same step again: the attempt counts, but it is no progress.
--   via                    a border passed on the way: two transitions, one write. The end of a step and the
--                          beginning of the next are one transaction.
-- A cancel request is honoured at a step's border: no new step begins, and nothing ends but compensated.
CREATE OR REPLACE FUNCTION makegood.move_workflows(
  p_triggered_by text, p_begins_step boolean, p_lease_seconds double precision, p_items jsonb)
RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  WITH items AS MATERIALIZED (
    SELECT i.*, i.from_state = i.to_state AS again FROM jsonb_to_recordset(p_items) AS i(
      id uuid, fence bigint, from_state text, via text, to_state text, metadata jsonb, patch jsonb)
  ), moved AS (
    UPDATE makegood.workflow_executions e
       SET current_state = CASE WHEN e.cancel_requested THEN coalesce(i.via, i.to_state) ELSE i.to_state END,
           last_seq = e.last_seq + CASE WHEN i.again THEN 0 WHEN i.via IS NULL OR e.cancel_requested THEN 1 ELSE 2 END,
           context = CASE WHEN i.patch IS NULL THEN e.context ELSE e.context || i.patch END,
           attempts = CASE WHEN i.again AND p_begins_step THEN e.attempts + 1
                           WHEN p_begins_step OR (i.via IS NOT NULL AND NOT e.cancel_requested) THEN 1
                           ELSE 0 END,
           -- Two: room for a border in between, even where the clock was set back.
           updated_at = CASE WHEN i.again THEN e.updated_at
                             ELSE greatest(t, e.updated_at + interval '2 microseconds') END,
           deadline_at = CASE WHEN i.again THEN e.deadline_at ELSE t + coalesce(
             (SELECT s.stuck_after FROM makegood.workflow_states s
               WHERE s.workflow_type = e.workflow_type AND s.state = i.to_state), interval '5 minutes') END,
           finished_at = CASE WHEN i.to_state IN ('completed', 'failed', 'compensated')
                              THEN greatest(t, e.updated_at + interval '2 microseconds') END,
           lease_owner = CASE WHEN i.to_state NOT IN ('completed', 'failed', 'compensated') THEN e.lease_owner END,
           lease_until = CASE WHEN i.to_state IN ('completed', 'failed', 'compensated') THEN NULL
                              WHEN (p_begins_step OR i.via IS NOT NULL) AND e.lease_until IS NOT NULL
                              THEN greatest(e.lease_until, t + make_interval(secs => p_lease_seconds))
                              ELSE e.lease_until END
      FROM items i
     WHERE e.id = i.id
       AND e.id = ANY (ARRAY(SELECT b.id FROM items b))
       AND e.current_state = i.from_state
       AND e.fence = i.fence
       AND e.held_at IS NULL
       AND NOT (e.cancel_requested AND NOT i.again AND i.via IS NULL AND (p_begins_step OR i.to_state IN ('completed', 'failed')))
    RETURNING e.id, e.entity_id, e.last_seq, e.updated_at, e.current_state, i.again, i.from_state, i.via,
              coalesce(i.metadata, '{}') || CASE WHEN e.cancel_requested AND e.current_state = 'compensating'
                THEN jsonb_build_object('cancel_requested_by', e.cancel_requested_by, 'cancel_reason', e.cancel_reason)
                ELSE '{}' END AS metadata
  ), hops AS (
    -- The border first, and a microsecond earlier: by number, by id and by time it is the same story.
    SELECT m.id, m.entity_id, m.last_seq - (m.current_state <> m.via)::integer AS seq, m.from_state, m.via AS to_state,
           m.metadata, m.updated_at - (m.current_state <> m.via)::integer * interval '1 microsecond' AS moved_at
      FROM moved m WHERE m.via IS NOT NULL
    UNION ALL
    SELECT m.id, m.entity_id, m.last_seq, coalesce(m.via, m.from_state), m.current_state,
           CASE WHEN m.via IS NULL THEN m.metadata ELSE '{}' END, m.updated_at
      FROM moved m WHERE NOT m.again AND m.current_state IS DISTINCT FROM m.via
  ), logged AS (
    INSERT INTO makegood.workflow_transitions (
      workflow_id, entity_id, seq, from_state, to_state, triggered_by, metadata, transitioned_at)
    SELECT h.id, h.entity_id, h.seq, h.from_state, h.to_state, p_triggered_by, h.metadata, h.moved_at FROM hops h
  )
  SELECT m.id, m.current_state FROM moved m;
END
$$;
COMMENT ON FUNCTION makegood.move_workflows(text, boolean, double precision, jsonb) IS
  'The guarded write of every change of state: items {id, fence, from_state, via, to_state, metadata, patch}; returns those that moved.';

-- One guarded transition, for a service in any language. False: somebody else won, re-read and go on.
CREATE OR REPLACE FUNCTION makegood.transition_workflow(
  p_id uuid, p_from_state text, p_to_state text, p_fence bigint, p_triggered_by text DEFAULT session_user,
  p_metadata jsonb DEFAULT '{}')
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_from_state = p_to_state THEN
    RAISE EXCEPTION 'illegal transition: % → % goes nowhere', p_from_state, p_to_state USING ERRCODE = 'MG001';
  END IF;
  IF p_to_state = 'compensating' THEN
    RAISE EXCEPTION 'a workflow enters compensating only with what is owed' USING ERRCODE = 'MG001',
      HINT = 'Ask for it with makegood.request_cancel(), or write the undos with makegood.compensate_workflows().';
  END IF;
  PERFORM makegood.move_workflows(p_triggered_by, false, 0, jsonb_build_array(jsonb_build_object(
    'id', p_id, 'fence', p_fence, 'from_state', p_from_state, 'to_state', p_to_state, 'metadata', p_metadata)));
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.transition_workflow(uuid, text, text, bigint, text, jsonb) IS
  'One guarded change of state; true when it happened, false when another writer was first, an error when it is illegal.';
