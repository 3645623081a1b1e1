-- Alerts leave through the outbox, at least once: taken, sent, and only then marked as published. A sender that
-- dies in between leaves them to the next.

CREATE OR REPLACE FUNCTION makegood.take_alerts(p_batch integer, p_lease_seconds double precision)
RETURNS SETOF makegood.outbox
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  WITH c AS MATERIALIZED (
    SELECT o.id FROM makegood.outbox o
     WHERE o.published_at IS NULL AND o.topic = 'alert' AND (o.taken_until IS NULL OR o.taken_until <= t)
     ORDER BY o.id LIMIT p_batch FOR UPDATE SKIP LOCKED
  )
  UPDATE makegood.outbox o SET taken_until = t + make_interval(secs => p_lease_seconds), attempts = o.attempts + 1
    FROM c WHERE o.id = c.id
  RETURNING o.*;
END
$$;
COMMENT ON FUNCTION makegood.take_alerts(integer, double precision) IS 'Takes alerts that nobody has sent yet, for a while.';

CREATE OR REPLACE FUNCTION makegood.publish_alerts(p_ids bigint[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH published AS (
    UPDATE makegood.outbox SET published_at = clock_timestamp(), taken_until = NULL
     WHERE id = ANY (p_ids) AND topic = 'alert' AND published_at IS NULL RETURNING 1
  )
  SELECT count(*) FROM published
$$;
COMMENT ON FUNCTION makegood.publish_alerts(bigint[]) IS 'Marks alerts as sent; returns how many were not marked before.';

-- Sending failed: another may try after a while.
CREATE OR REPLACE FUNCTION makegood.postpone_alerts(p_ids bigint[], p_wait_seconds double precision) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.outbox SET taken_until = clock_timestamp() + make_interval(secs => p_wait_seconds)
   WHERE id = ANY (p_ids) AND topic = 'alert' AND published_at IS NULL
$$;
COMMENT ON FUNCTION makegood.postpone_alerts(bigint[], double precision) IS 'Alerts that could not be sent are taken again after a while.';
