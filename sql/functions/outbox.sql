-- The outbox: messages written in the transaction that makes them true, and taken by whoever delivers their topic, at
-- least once. Take, deliver, publish; a deliverer that dies in between leaves them to the next. `alert` is makegood's
-- own; the checkout's `send_confirmation` and `update_analytics` are for a service of yours.

CREATE OR REPLACE FUNCTION makegood.take_messages(p_topic text, p_batch integer, p_lease_seconds double precision)
RETURNS SETOF makegood.outbox
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
  WITH c AS MATERIALIZED (
    SELECT o.id FROM makegood.outbox o
     WHERE o.topic = p_topic AND o.published_at IS NULL AND (o.taken_until IS NULL OR o.taken_until <= t)
     ORDER BY o.id LIMIT least(p_batch, 10000) FOR UPDATE SKIP LOCKED
  ), taken AS (
    UPDATE makegood.outbox o SET taken_until = t + make_interval(secs => p_lease_seconds), attempts = o.attempts + 1
      FROM c WHERE o.id = c.id
    RETURNING o.*
  )
  SELECT * FROM taken ORDER BY id;
END
$$;
COMMENT ON FUNCTION makegood.take_messages(text, integer, double precision) IS
  'Takes messages of a topic that nobody has delivered yet, the oldest first, for a while.';

CREATE OR REPLACE FUNCTION makegood.publish_messages(p_topic text, p_ids bigint[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH published AS (
    UPDATE makegood.outbox SET published_at = clock_timestamp(), taken_until = NULL
     WHERE id = ANY (p_ids) AND topic = p_topic AND published_at IS NULL RETURNING 1
  )
  SELECT count(*) FROM published
$$;
COMMENT ON FUNCTION makegood.publish_messages(text, bigint[]) IS
  'Marks messages of a topic as delivered; returns how many were not marked before.';

-- Delivery failed: another may try after a while.
CREATE OR REPLACE FUNCTION makegood.postpone_messages(p_topic text, p_ids bigint[], p_wait_seconds double precision)
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE makegood.outbox SET taken_until = clock_timestamp() + make_interval(secs => p_wait_seconds)
   WHERE id = ANY (p_ids) AND topic = p_topic AND published_at IS NULL
$$;
COMMENT ON FUNCTION makegood.postpone_messages(text, bigint[], double precision) IS
  'Messages that could not be delivered are taken again after a while.';

-- Alerts are one of the topics, which makegood delivers itself.

CREATE OR REPLACE FUNCTION makegood.take_alerts(p_batch integer, p_lease_seconds double precision)
RETURNS SETOF makegood.outbox
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT * FROM makegood.take_messages('alert', p_batch, p_lease_seconds)
$$;
COMMENT ON FUNCTION makegood.take_alerts(integer, double precision) IS 'Takes alerts that nobody has sent yet, for a while.';

CREATE OR REPLACE FUNCTION makegood.publish_alerts(p_ids bigint[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT makegood.publish_messages('alert', p_ids)
$$;
COMMENT ON FUNCTION makegood.publish_alerts(bigint[]) IS 'Marks alerts as sent; returns how many were not marked before.';

CREATE OR REPLACE FUNCTION makegood.postpone_alerts(p_ids bigint[], p_wait_seconds double precision) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT makegood.postpone_messages('alert', p_ids, p_wait_seconds)
$$;
COMMENT ON FUNCTION makegood.postpone_alerts(bigint[], double precision) IS 'Alerts that could not be sent are taken again after a while.';
