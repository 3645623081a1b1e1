-- Leases. A claim raises the fence, so that whatever a late worker still writes is refused.

-- Takes up to p_batch rows that are due and free, oldest first, in one statement.
--   p_stuck_only          only those past their step's deadline (what recovery looks for)
--   p_states              only those in one of these states
--   p_older_than_seconds  only those without progress for at least so long
--   p_take_over_after_seconds  what a dead worker left is taken so long after its lease ran out: recovery comes first
CREATE OR REPLACE FUNCTION makegood.claim_workflows(
  p_worker text, p_lease_seconds double precision, p_batch integer, p_types text[] DEFAULT NULL,
  p_stuck_only boolean DEFAULT false, p_ids uuid[] DEFAULT NULL, p_states text[] DEFAULT NULL,
  p_older_than_seconds double precision DEFAULT NULL, p_take_over_after_seconds double precision DEFAULT 0)
RETURNS SETOF makegood.workflow_executions
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  -- MATERIALIZED and SKIP LOCKED: measured, a plain subselect under a nested loop claims too many.
  WITH c AS MATERIALIZED (
    SELECT e.id FROM makegood.workflow_executions e
     WHERE e.finished_at IS NULL AND e.held_at IS NULL
       AND e.next_attempt_at <= t
       AND (e.lease_until IS NULL OR e.lease_until <= t - make_interval(secs => p_take_over_after_seconds))
       AND (NOT p_stuck_only OR e.deadline_at <= t)
       AND (p_older_than_seconds IS NULL OR e.updated_at <= t - make_interval(secs => p_older_than_seconds))
       AND (p_types IS NULL OR e.workflow_type = ANY (p_types))
       AND (p_states IS NULL OR e.current_state = ANY (p_states))
       AND (p_ids IS NULL OR e.id = ANY (p_ids))
     ORDER BY e.next_attempt_at
     LIMIT coalesce(p_batch, 500)
     FOR UPDATE SKIP LOCKED
  )
  UPDATE makegood.workflow_executions e
     SET fence = e.fence + 1, lease_owner = p_worker, lease_until = t + make_interval(secs => p_lease_seconds)
    FROM c WHERE e.id = c.id
  RETURNING e.*;
END
$$;
COMMENT ON FUNCTION makegood.claim_workflows(text, double precision, integer, text[], boolean, uuid[], text[], double precision, double precision) IS
  'Leases due workflows to a worker and raises their fence; returns the rows as claimed.';

-- A worker that still has rows waiting for their turn keeps them. Returns those it still holds.
CREATE OR REPLACE FUNCTION makegood.renew_leases(p_lease_seconds double precision, p_items jsonb) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  UPDATE makegood.workflow_executions e
     SET lease_until = clock_timestamp() + make_interval(secs => p_lease_seconds)
    FROM jsonb_to_recordset(p_items) AS i(id uuid, fence bigint)
   WHERE e.id = i.id AND e.fence = i.fence AND e.lease_until IS NOT NULL
     AND e.id = ANY (ARRAY(SELECT b.id FROM jsonb_to_recordset(p_items) AS b(id uuid)))
  RETURNING e.id
$$;

-- Gives rows back: due again after wait_seconds, or parked for a person where hold_reason is given, and
-- then automatic jobs leave them alone. Not progress: updated_at stays. attempts_change is -1 for a call that
-- never got as far as the service (that attempt is not spent), 1 for a look-up (they are bounded too).
CREATE OR REPLACE FUNCTION makegood.pause_workflows(p_items jsonb) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
DECLARE
  v_paused uuid[];
BEGIN
  WITH paused AS (
    UPDATE makegood.workflow_executions e
       SET lease_owner = NULL, lease_until = NULL,
           held_at = CASE WHEN i.hold_reason IS NOT NULL THEN clock_timestamp() END,
           held_reason = left(i.hold_reason, 2000),
           attempts = greatest(e.attempts + coalesce(i.attempts_change, 0), 0),
           next_attempt_at = CASE WHEN i.wait_seconds > 0
                                  THEN clock_timestamp() + make_interval(secs => i.wait_seconds)
                                  ELSE e.next_attempt_at END
      FROM jsonb_to_recordset(p_items) AS i(
        id uuid, fence bigint, wait_seconds double precision, hold_reason text, attempts_change integer)
     WHERE e.id = i.id AND e.fence = i.fence AND e.finished_at IS NULL AND e.held_at IS NULL
       AND e.id = ANY (ARRAY(SELECT b.id FROM jsonb_to_recordset(p_items) AS b(id uuid)))
    RETURNING e.id
  )
  SELECT array_agg(p.id) INTO v_paused FROM paused p;
  IF EXISTS (SELECT FROM jsonb_to_recordset(p_items) AS i(hold_reason text) WHERE i.hold_reason IS NOT NULL) THEN
    PERFORM makegood.keep_held(v_paused, p_items);
  END IF;
  RETURN QUERY SELECT unnest(v_paused);
END
$$;

-- The rows a worker holds, as they are now: what it reads after losing a race or an acknowledgement.
CREATE OR REPLACE FUNCTION makegood.reread_workflows(p_items jsonb) RETURNS SETOF makegood.workflow_executions
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  SELECT e.* FROM makegood.workflow_executions e
    JOIN jsonb_to_recordset(p_items) AS i(id uuid, fence bigint) ON e.id = i.id AND e.fence = i.fence
   WHERE e.held_at IS NULL AND e.lease_until IS NOT NULL
     AND e.id = ANY (ARRAY(SELECT b.id FROM jsonb_to_recordset(p_items) AS b(id uuid)))
$$;
COMMENT ON FUNCTION makegood.renew_leases(double precision, jsonb) IS 'Extends leases a worker still holds: items {id, fence}.';
COMMENT ON FUNCTION makegood.pause_workflows(jsonb) IS 'Gives leased workflows back, or parks them: items {id, fence, wait_seconds, attempts_change, hold_reason, error_type}.';
COMMENT ON FUNCTION makegood.reread_workflows(jsonb) IS 'The rows still held under these fences: items {id, fence}.';
