-- Fetching the provider's books. One worker has a collection at a time (lease and fence); each page's rows and how far its
-- window is are one transaction; the watermark follows what is complete and nothing else.

CREATE OR REPLACE FUNCTION makegood.claim_sync(
  p_provider text, p_collection text, p_owner text, p_lease_seconds double precision)
RETURNS TABLE (fence bigint, watermark timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO makegood.provider_sync (provider, collection) VALUES (p_provider, p_collection) ON CONFLICT DO NOTHING;
  RETURN QUERY
  UPDATE makegood.provider_sync AS s
     SET fence = s.fence + 1, lease_owner = p_owner, lease_until = clock_timestamp() + make_interval(secs => p_lease_seconds),
         updated_at = clock_timestamp()
   WHERE s.provider = p_provider AND s.collection = p_collection
     AND (s.lease_until IS NULL OR s.lease_until <= clock_timestamp())
  RETURNING s.fence, s.watermark;
END
$$;
COMMENT ON FUNCTION makegood.claim_sync(text, text, text, double precision) IS
  'Takes a collection for a while and returns the fence and the watermark; no row while somebody else has it.';

-- Whether the caller still has the collection; if so, for as long again. Locks the row until the end of the transaction.
CREATE OR REPLACE FUNCTION makegood.keep_sync(
  p_provider text, p_collection text, p_fence bigint, p_lease_seconds double precision)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.provider_sync AS s
     SET lease_until = clock_timestamp() + make_interval(secs => p_lease_seconds), updated_at = clock_timestamp()
   WHERE s.provider = p_provider AND s.collection = p_collection AND s.fence = p_fence AND s.lease_owner IS NOT NULL;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.keep_sync(text, text, bigint, double precision) IS 'Prolongs the lease under its fence; false: it is another''s.';

-- The windows of a fetch: those that one before it left, or the given ones. They have to touch one another, and to begin at
-- or before the watermark, so that nothing lies between what is complete and what is read next.
CREATE OR REPLACE FUNCTION makegood.plan_windows(
  p_provider text, p_collection text, p_fence bigint, p_windows jsonb, p_lease_seconds double precision)
RETURNS SETOF makegood.provider_windows
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_watermark timestamptz;
BEGIN
  IF NOT makegood.keep_sync(p_provider, p_collection, p_fence, p_lease_seconds) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM makegood.provider_windows w WHERE w.provider = p_provider AND w.collection = p_collection) THEN
    SELECT s.watermark INTO v_watermark FROM makegood.provider_sync s
     WHERE s.provider = p_provider AND s.collection = p_collection;
    IF EXISTS (SELECT FROM (
        SELECT to_timestamp((i.v->>'from')::bigint) AS from_at,
               lag(to_timestamp((i.v->>'until')::bigint)) OVER (ORDER BY (i.v->>'from')::bigint) AS before_until
          FROM jsonb_array_elements(p_windows) AS i(v)) AS g
        WHERE g.from_at IS DISTINCT FROM coalesce(g.before_until, g.from_at)
           OR (g.before_until IS NULL AND g.from_at > v_watermark)) THEN
      RAISE EXCEPTION 'the windows of %/% leave a gap', p_provider, p_collection USING ERRCODE = 'MG002',
        HINT = 'They must touch one another and begin at or before the watermark.';
    END IF;
    INSERT INTO makegood.provider_windows (provider, collection, from_at, until_at)
    SELECT p_provider, p_collection, to_timestamp((i.v->>'from')::bigint), to_timestamp((i.v->>'until')::bigint)
      FROM jsonb_array_elements(p_windows) AS i(v);
  END IF;
  RETURN QUERY SELECT * FROM makegood.provider_windows w WHERE w.provider = p_provider AND w.collection = p_collection
                ORDER BY w.from_at;
END
$$;
COMMENT ON FUNCTION makegood.plan_windows(text, text, bigint, jsonb, double precision) IS
  'The windows that a fetch has to read: what an earlier one left, else the given ones [{from, until}] in seconds since 1970.';

-- One page: its rows, how far its window is, perhaps a part of the window that another cursor shall read, and at its end
-- the watermark. Null: the collection is another''s by now, and nothing was written.
--   p_cursor    {top_id, before_id, last_id, last_created} of the window after this page; {} leaves it as it is
--   p_split_at  the window now begins here; what is older is a window of its own
CREATE OR REPLACE FUNCTION makegood.put_provider_page(
  p_provider text, p_collection text, p_fence bigint, p_lease_seconds double precision, p_from bigint, p_rows jsonb,
  p_cursor jsonb, p_done boolean, p_split_at bigint DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_from timestamptz := to_timestamp(p_from);
  v_put jsonb;
BEGIN
  IF NOT makegood.keep_sync(p_provider, p_collection, p_fence, p_lease_seconds) THEN
    RETURN NULL;
  END IF;
  v_put := makegood.put_provider_rows(p_collection, p_rows, p_provider, 'sync');
  IF p_split_at IS NOT NULL THEN
    UPDATE makegood.provider_windows SET from_at = to_timestamp(p_split_at)
     WHERE provider = p_provider AND collection = p_collection AND from_at = v_from;
    INSERT INTO makegood.provider_windows (provider, collection, from_at, until_at)
    VALUES (p_provider, p_collection, v_from, to_timestamp(p_split_at));
    v_from := to_timestamp(p_split_at);
  END IF;
  UPDATE makegood.provider_windows AS w
     SET top_id = coalesce(w.top_id, p_cursor->>'top_id'), before_id = coalesce(p_cursor->>'before_id', w.before_id),
         last_id = coalesce(p_cursor->>'last_id', w.last_id),
         last_created_at = coalesce(to_timestamp((p_cursor->>'last_created')::bigint), w.last_created_at),
         done = p_done, pages = w.pages + 1, error = NULL, updated_at = clock_timestamp()
   WHERE w.provider = p_provider AND w.collection = p_collection AND w.from_at = v_from AND NOT w.done;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no open window of %/% from %', p_provider, p_collection, v_from USING ERRCODE = 'MG002';
  END IF;
  IF p_done THEN
    PERFORM makegood.raise_watermark(p_provider, p_collection);
  END IF;
  RETURN v_put;
END
$$;
COMMENT ON FUNCTION makegood.put_provider_page(
  text, text, bigint, double precision, bigint, jsonb, jsonb, boolean, bigint) IS
  'Stores one page with the place of its window, under the fence; null when somebody else has the collection.';

-- Up to the first window that is not done, never back, and never over a time that no window covered.
CREATE OR REPLACE FUNCTION makegood.raise_watermark(p_provider text, p_collection text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_until timestamptz;
BEGIN
  SELECT coalesce(min(w.from_at) FILTER (WHERE NOT w.done), max(w.until_at)) INTO v_until FROM makegood.provider_windows w
   WHERE w.provider = p_provider AND w.collection = p_collection;
  -- The first window itself is under way: nothing before it was read now.
  IF EXISTS (SELECT FROM makegood.provider_windows w
              WHERE w.provider = p_provider AND w.collection = p_collection AND w.done AND w.from_at < v_until) THEN
    UPDATE makegood.provider_sync AS s SET watermark = greatest(s.watermark, v_until), updated_at = clock_timestamp()
     WHERE s.provider = p_provider AND s.collection = p_collection;
  END IF;
  DELETE FROM makegood.provider_windows w
   WHERE w.provider = p_provider AND w.collection = p_collection AND w.done AND w.until_at <= v_until;
END
$$;
COMMENT ON FUNCTION makegood.raise_watermark(text, text) IS
  'Moves the watermark over the windows that are done, up to the first that is not, and forgets them.';

-- A window that cannot be trusted is read again from its beginning, by the next fetch.
CREATE OR REPLACE FUNCTION makegood.fail_window(p_provider text, p_collection text, p_fence bigint, p_from bigint, p_error text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.provider_sync AS s SET error = left(p_error, 2000), updated_at = clock_timestamp()
   WHERE s.provider = p_provider AND s.collection = p_collection AND s.fence = p_fence;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE makegood.provider_windows AS w
     SET top_id = NULL, before_id = NULL, last_id = NULL, last_created_at = NULL, error = left(p_error, 2000),
         updated_at = clock_timestamp()
   WHERE w.provider = p_provider AND w.collection = p_collection AND w.from_at = to_timestamp(p_from) AND NOT w.done;
  RETURN true;
END
$$;
COMMENT ON FUNCTION makegood.fail_window(text, text, bigint, bigint, text) IS
  'Notes why a window cannot be trusted, and lets the next fetch read it from its beginning.';

CREATE OR REPLACE FUNCTION makegood.release_sync(p_provider text, p_collection text, p_fence bigint, p_error text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.provider_sync AS s
     SET lease_owner = NULL, lease_until = NULL, error = left(p_error, 2000), updated_at = clock_timestamp(),
         fetched_at = CASE WHEN p_error IS NULL THEN clock_timestamp() ELSE s.fetched_at END
   WHERE s.provider = p_provider AND s.collection = p_collection AND s.fence = p_fence;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.release_sync(text, text, bigint, text) IS
  'Gives a collection back, with why it is not complete or null; nothing happens under an older fence.';

-- Where nothing is fetched, what fetches before that never completed has no say in how far the books are.
CREATE OR REPLACE FUNCTION makegood.forget_sync(p_provider text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_gone bigint;
BEGIN
  DELETE FROM makegood.provider_sync AS s
   WHERE s.provider = p_provider AND s.watermark IS NULL AND s.fence > 0 AND s.lease_owner IS NULL
     AND NOT EXISTS (SELECT FROM makegood.provider_windows w WHERE w.provider = s.provider AND w.collection = s.collection);
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_gone;
END
$$;
COMMENT ON FUNCTION makegood.forget_sync(text) IS
  'Forgets collections of a provider of which no fetch ever read anything; returns how many.';

-- What may still change at the provider without being new: each fetch reads these one by one, a sample where they are many.
CREATE OR REPLACE FUNCTION makegood.find_open_rows(p_provider text, p_collection text, p_limit integer) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT o.id FROM (
    SELECT c.id FROM makegood.provider_charges c
     WHERE p_collection = 'charges' AND c.provider = p_provider AND (c.status IN ('pending', 'authorized') OR c.captures_open)
    UNION ALL
    SELECT r.id FROM makegood.provider_refunds r
     WHERE p_collection = 'refunds' AND r.provider = p_provider AND r.status IN ('pending', 'requires_action')
    UNION ALL
    SELECT d.id FROM makegood.provider_disputes d
     WHERE p_collection = 'disputes' AND d.provider = p_provider AND d.status = 'open'
    UNION ALL
    SELECT p.id FROM makegood.provider_payouts p
     WHERE p_collection = 'payouts' AND p.provider = p_provider AND p.status IN ('pending', 'in_transit')
  ) AS o ORDER BY random() LIMIT p_limit
$$;
COMMENT ON FUNCTION makegood.find_open_rows(text, text, integer) IS
  'Ids of what may still change: charges not captured for good, refunds and disputes under way, payouts on their way.';

-- What was read outside of a window: single objects that may have changed, and what a payout is made of.
--   p_payout  the payout that is complete with these rows
CREATE OR REPLACE FUNCTION makegood.put_provider_updates(
  p_provider text, p_collection text, p_fence bigint, p_lease_seconds double precision, p_target text, p_rows jsonb,
  p_payout text DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_put jsonb;
BEGIN
  IF NOT makegood.keep_sync(p_provider, p_collection, p_fence, p_lease_seconds) THEN
    RETURN NULL;
  END IF;
  v_put := makegood.put_provider_rows(p_target, p_rows, p_provider, 'sync');
  IF p_payout IS NOT NULL THEN
    INSERT INTO makegood.provider_payouts_read (payout_id) VALUES (p_payout) ON CONFLICT (payout_id) DO NOTHING;
  END IF;
  RETURN v_put;
END
$$;
COMMENT ON FUNCTION makegood.put_provider_updates(text, text, bigint, double precision, text, jsonb, text) IS
  'Stores rows of p_target that were read beside the windows of a collection, under its fence; null when it is another''s.';

-- A payout that was made by hand: the provider does not say what it is made of, so nobody asks again, and nothing is added up.
CREATE OR REPLACE FUNCTION makegood.put_payout_without_parts(
  p_provider text, p_collection text, p_fence bigint, p_lease_seconds double precision, p_payout text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT makegood.keep_sync(p_provider, p_collection, p_fence, p_lease_seconds) THEN
    RETURN false;
  END IF;
  INSERT INTO makegood.provider_payouts_read (payout_id, with_parts) VALUES (p_payout, false) ON CONFLICT (payout_id) DO NOTHING;
  RETURN true;
END
$$;
COMMENT ON FUNCTION makegood.put_payout_without_parts(text, text, bigint, double precision, text) IS
  'Notes that a payout''s parts cannot be asked for, under the fence of its collection; false when it is another''s.';

CREATE OR REPLACE FUNCTION makegood.find_payouts_to_read(p_provider text, p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.id FROM makegood.provider_payouts p
   WHERE p.provider = p_provider AND p.status IN ('paid', 'in_transit')
     AND NOT EXISTS (SELECT FROM makegood.provider_payouts_read k WHERE k.payout_id = p.id)
   ORDER BY p.created_at DESC LIMIT p_limit
$$;
COMMENT ON FUNCTION makegood.find_payouts_to_read(text, integer) IS 'Payouts that were not asked yet what they are made of, newest first.';
