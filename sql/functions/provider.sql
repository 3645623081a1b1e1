-- The one way into the provider's books. A row is checked, merged with what is known and written only where it says
-- something new; whether a charge is plain is kept in the same transaction, whatever comes first.

-- Times come as seconds since 1970 or as ISO 8601; what is neither is null.
CREATE OR REPLACE FUNCTION makegood.read_time(p_text text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
BEGIN
  IF p_text ~ '^[0-9]{1,11}$' THEN
    RETURN to_timestamp(p_text::double precision);
  ELSIF p_text ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}' THEN
    RETURN p_text::timestamptz;
  END IF;
  RETURN NULL;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION makegood.read_time(text) IS 'A time of the provider: seconds since 1970 or ISO 8601; null for anything else.';

-- The small ones below have no settings of their own, so that PostgreSQL writes them out where they are called: with a
-- hundred rows to a page that is half of the time.
CREATE OR REPLACE FUNCTION makegood.provider_time(p_text text) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_text ~ '^[0-9]{1,11}$' THEN to_timestamp(p_text::double precision) ELSE makegood.read_time(p_text) END
$$;
COMMENT ON FUNCTION makegood.provider_time(text) IS 'The same as read_time, quicker for seconds.';

CREATE OR REPLACE FUNCTION makegood.is_whole(p_text text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_text ~ '^-?[0-9]{1,15}$', false)
$$;
COMMENT ON FUNCTION makegood.is_whole(text) IS
  'Whether a text is a whole number of at most 15 digits: thousands of such, or a thousand times one, fit into a bigint.';

-- Why a row cannot be taken; null where it can.
CREATE OR REPLACE FUNCTION makegood.refuse_provider_row(p_collection text, p_row jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN jsonb_typeof(p_row) IS DISTINCT FROM 'object' THEN 'it is not an object'
    WHEN p_row ? 'refused' THEN left(coalesce(p_row->>'refused', 'it could not be read'), 900)  -- by who read it
    WHEN coalesce(length(p_row->>'id'), 0) NOT BETWEEN 1 AND 255 THEN 'its id must have 1 to 255 characters'
    WHEN coalesce(p_row->>'currency', '') !~ '^[A-Z]{3}$'
      THEN format('its currency is %s; it must be three capitals, for example EUR', coalesce(left(p_row->>'currency', 20), 'missing'))
    WHEN NOT EXISTS (SELECT FROM makegood.currencies c WHERE c.code = p_row->>'currency')
      THEN format('the currency %s does not exist (makegood.currencies)', p_row->>'currency')
    WHEN NOT makegood.is_whole(p_row->>'amount_minor')
      THEN format('amount_minor is %s; it must be a whole number of minor units, of at most 15 digits', coalesce(left(p_row->>'amount_minor', 30), 'missing'))
    WHEN makegood.provider_time(p_row->>'created_at') IS NULL
      THEN format('created_at is %s; it must be a time', coalesce(left(p_row->>'created_at', 40), 'missing'))
    WHEN EXISTS (SELECT FROM jsonb_each_text(p_row) f
                  WHERE f.key IN ('payment_ref', 'order_ref', 'customer_ref', 'charge_id', 'compensation_ref', 'source_ref',
                                  'payout_ref') AND length(f.value) > 255)
      THEN 'one of its references is longer than 255 characters'
    WHEN p_collection IN ('charges', 'refunds', 'disputes') AND (p_row->>'amount_minor')::bigint < 0
      THEN 'amount_minor is below zero'
    WHEN p_collection IN ('refunds', 'disputes') AND coalesce(p_row->>'charge_id', '') = '' THEN 'it names no charge'
    WHEN p_collection <> 'balance_transactions' AND NOT coalesce(p_row->>'status' = ANY (CASE p_collection
        WHEN 'charges' THEN ARRAY['succeeded', 'authorized', 'lapsed', 'pending', 'failed']
        WHEN 'refunds' THEN ARRAY['pending', 'succeeded', 'failed', 'canceled', 'requires_action']
        WHEN 'disputes' THEN ARRAY['open', 'won', 'lost']
        ELSE ARRAY['pending', 'in_transit', 'paid', 'failed', 'canceled'] END), false)
      THEN format('its status is %s, which is not one of ours', coalesce(left(p_row->>'status', 30), 'missing'))
    WHEN p_collection = 'charges' THEN CASE
      WHEN NOT makegood.is_whole(p_row->>'captured_minor') OR (p_row->>'captured_minor')::bigint < 0
        THEN 'captured_minor must be a whole number of minor units, of at most 15 digits'
      WHEN p_row->>'captured_minor' <> '0' AND p_row->>'status' <> 'succeeded'
        THEN format('it is %s and yet something was captured', p_row->>'status')
      WHEN jsonb_typeof(p_row->'livemode') IS DISTINCT FROM 'boolean' THEN 'livemode must be true or false'
      WHEN p_row->>'capture_before' IS NOT NULL AND makegood.provider_time(p_row->>'capture_before') IS NULL
        THEN 'capture_before must be a time'
      WHEN coalesce(p_row->'captures_open', 'false') NOT IN ('true', 'false') THEN 'captures_open must be true or false'
      END
    WHEN p_collection = 'balance_transactions' THEN CASE
      WHEN coalesce(length(p_row->>'kind'), 0) NOT BETWEEN 1 AND 100 THEN 'its kind must have 1 to 100 characters'
      WHEN NOT makegood.is_whole(p_row->>'fee_minor') OR NOT makegood.is_whole(p_row->>'net_minor')
        THEN 'fee_minor and net_minor must be whole numbers of minor units, of at most 15 digits'
      END
    END
$$;
COMMENT ON FUNCTION makegood.refuse_provider_row(text, jsonb) IS 'Why a row of the provider cannot be taken; null where it can.';

-- Which of two statuses of one object came later in its life. An object never goes back, so a lower one is an older copy.
CREATE OR REPLACE FUNCTION makegood.provider_rank(p_collection text, p_status text, p_captures_open boolean DEFAULT false)
RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_collection
    WHEN 'charges' THEN CASE p_status WHEN 'pending' THEN 0 WHEN 'authorized' THEN 1 WHEN 'lapsed' THEN 2
                                      WHEN 'succeeded' THEN CASE WHEN p_captures_open THEN 3 ELSE 4 END ELSE 4 END
    WHEN 'refunds' THEN CASE p_status WHEN 'requires_action' THEN 0 WHEN 'pending' THEN 1 WHEN 'succeeded' THEN 2 ELSE 3 END
    WHEN 'disputes' THEN CASE p_status WHEN 'open' THEN 0 ELSE 1 END
    WHEN 'payouts' THEN CASE p_status WHEN 'pending' THEN 0 WHEN 'in_transit' THEN 1 WHEN 'paid' THEN 2 ELSE 3 END
    ELSE 0 END
$$;
COMMENT ON FUNCTION makegood.provider_rank(text, text, boolean) IS
  'How far an object of the provider is in its life; a lower number is an older copy of it.';

-- The next three write checked rows, each id once, and return how many said something new. A key that a row does not
-- have says nothing: what is known stays.
CREATE OR REPLACE FUNCTION makegood.put_charges(p_provider text, p_rows jsonb, p_only_new boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_new makegood.provider_charges[];
  v_ids text[];
  v_live text[];
  v_failed text[];
BEGIN
  WITH merged AS (
    SELECT e.r->>'id' AS id, coalesce(nullif(e.r->>'payment_ref', ''), c.payment_ref, e.r->>'id') AS payment_ref,
           CASE WHEN e.r ? 'order_ref' THEN e.r->>'order_ref' ELSE c.order_ref END AS order_ref,
           CASE WHEN e.r ? 'customer_ref' THEN e.r->>'customer_ref' ELSE c.customer_ref END AS customer_ref,
           e.r->>'status' AS status, (e.r->>'amount_minor')::bigint AS amount_minor,
           (e.r->>'captured_minor')::bigint AS captured_minor, e.r->>'currency' AS currency,
           (e.r->>'livemode')::boolean AS livemode,
           CASE WHEN e.r ? 'capture_before' THEN makegood.provider_time(e.r->>'capture_before') ELSE c.capture_before END
             AS capture_before,
           coalesce((e.r->>'captures_open')::boolean, false) AS captures_open,
           makegood.provider_time(e.r->>'created_at') AS created_at, c AS known
      FROM jsonb_array_elements(p_rows) AS e(r)
      LEFT JOIN makegood.provider_charges c ON c.id = e.r->>'id'
     WHERE c.id IS NULL OR NOT p_only_new
  ), changed AS (
    SELECT m.*, count(*) FILTER (WHERE m.status <> 'failed') OVER (PARTITION BY m.payment_ref) AS live FROM merged m
     WHERE (m.known).id IS NULL
        OR makegood.provider_rank('charges', m.status, m.captures_open)
             >= makegood.provider_rank('charges', (m.known).status, (m.known).captures_open)
           AND m.captured_minor >= (m.known).captured_minor
           AND (m.payment_ref, m.order_ref, m.customer_ref, m.status, m.amount_minor, m.captured_minor, m.currency,
                m.livemode, m.capture_before, m.captures_open, m.created_at) IS DISTINCT FROM
               ((m.known).payment_ref, (m.known).order_ref, (m.known).customer_ref, (m.known).status, (m.known).amount_minor,
                (m.known).captured_minor, (m.known).currency, (m.known).livemode, (m.known).capture_before,
                (m.known).captures_open, (m.known).created_at)
  )
  -- As far as this input goes; refunds, disputes and other charges on file have their say below.
  SELECT array_agg(ROW(h.id, p_provider, h.payment_ref, h.order_ref, h.customer_ref, h.status, h.amount_minor, h.captured_minor,
           h.currency, h.livemode, h.capture_before, h.captures_open,
           h.status = 'succeeded' AND NOT h.captures_open AND h.live = 1, false, h.created_at, NULL)::makegood.provider_charges),
         array_agg(h.id), array_agg(h.payment_ref) FILTER (WHERE h.status <> 'failed'),
         array_agg(h.payment_ref) FILTER (WHERE h.status = 'failed')
    INTO v_new, v_ids, v_live, v_failed FROM changed h;
  IF v_new IS NULL THEN
    RETURN 0;
  END IF;
  -- First whoever loses it: at no moment are two charges of one payment plain.
  UPDATE makegood.provider_charges AS c SET plain = false, given_back = false, changed_xid = pg_current_xact_id()
   WHERE (c.plain OR c.given_back) AND c.payment_ref = ANY (v_live)
     AND EXISTS (SELECT FROM unnest(v_new) n WHERE n.payment_ref = c.payment_ref AND n.id <> c.id AND n.status <> 'failed');
  INSERT INTO makegood.provider_charges AS c
         (id, provider, payment_ref, order_ref, customer_ref, status, amount_minor, captured_minor, currency, livemode,
          capture_before, captures_open, plain, given_back, created_at)
  SELECT n.id, n.provider, n.payment_ref, n.order_ref, n.customer_ref, n.status, n.amount_minor, n.captured_minor, n.currency,
         n.livemode, n.capture_before, n.captures_open, n.plain AND a.alone AND NOT a.refunds,
         n.plain AND a.alone AND a.refunds AND makegood.is_given_back(n.id, n.captured_minor), n.created_at
    FROM unnest(v_new) n
   CROSS JOIN LATERAL (
     SELECT EXISTS (SELECT FROM makegood.provider_refunds r WHERE r.charge_id = n.id) AS refunds,
            NOT EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.charge_id = n.id)
              AND NOT EXISTS (SELECT FROM makegood.provider_charges o
                               WHERE o.payment_ref = n.payment_ref AND o.id <> n.id AND o.status <> 'failed'
                                 AND NOT o.id = ANY (v_ids)) AS alone) AS a
  ON CONFLICT (id) DO UPDATE SET
    payment_ref = excluded.payment_ref, order_ref = excluded.order_ref, customer_ref = excluded.customer_ref,
    status = excluded.status, amount_minor = excluded.amount_minor, captured_minor = excluded.captured_minor,
    currency = excluded.currency, livemode = excluded.livemode, capture_before = excluded.capture_before,
    captures_open = excluded.captures_open, plain = excluded.plain, given_back = excluded.given_back,
    created_at = excluded.created_at, changed_xid = pg_current_xact_id();
  -- Last whoever gains it: a sibling that failed leaves the other charge alone.
  UPDATE makegood.provider_charges AS c SET plain = true, changed_xid = pg_current_xact_id()
   WHERE NOT c.plain AND c.status = 'succeeded' AND NOT c.captures_open AND c.payment_ref = ANY (v_failed)
     AND NOT EXISTS (SELECT FROM makegood.provider_refunds r WHERE r.charge_id = c.id)
     AND NOT EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.charge_id = c.id)
     AND NOT EXISTS (SELECT FROM makegood.provider_charges o
                      WHERE o.payment_ref = c.payment_ref AND o.id <> c.id AND o.status <> 'failed');
  RETURN cardinality(v_new);
END
$$;
COMMENT ON FUNCTION makegood.put_charges(text, jsonb, boolean) IS
  'Writes checked charges and keeps plain; called by put_provider_rows, which has the turn.';

-- Whether a charge's refunds are all of it, and none of them went wrong.
CREATE OR REPLACE FUNCTION makegood.is_given_back(p_charge_id text, p_captured_minor bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(sum(r.amount_minor) = p_captured_minor AND bool_and(r.status IN ('succeeded', 'pending')), false)
    FROM makegood.provider_refunds r WHERE r.charge_id = p_charge_id
$$;
COMMENT ON FUNCTION makegood.is_given_back(text, bigint) IS 'Whether refunds that live are exactly what a charge captured.';

CREATE OR REPLACE FUNCTION makegood.put_returns(p_collection text, p_provider text, p_rows jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_charges text[];
BEGIN
  IF p_collection = 'refunds' THEN
    WITH written AS (
      INSERT INTO makegood.provider_refunds AS k
             (id, provider, charge_id, compensation_ref, status, amount_minor, currency, created_at)
      SELECT e.r->>'id', p_provider, e.r->>'charge_id',
             CASE WHEN e.r ? 'compensation_ref' THEN e.r->>'compensation_ref' ELSE o.compensation_ref END,
             e.r->>'status', (e.r->>'amount_minor')::bigint, e.r->>'currency', makegood.provider_time(e.r->>'created_at')
        FROM jsonb_array_elements(p_rows) AS e(r) LEFT JOIN makegood.provider_refunds o ON o.id = e.r->>'id'
      ON CONFLICT (id) DO UPDATE SET
        charge_id = excluded.charge_id, compensation_ref = excluded.compensation_ref, status = excluded.status,
        amount_minor = excluded.amount_minor, currency = excluded.currency, created_at = excluded.created_at,
        changed_xid = pg_current_xact_id()
      WHERE makegood.provider_rank('refunds', excluded.status) >= makegood.provider_rank('refunds', k.status)
        AND (k.charge_id, k.compensation_ref, k.status, k.amount_minor, k.currency, k.created_at) IS DISTINCT FROM
            (excluded.charge_id, excluded.compensation_ref, excluded.status, excluded.amount_minor, excluded.currency,
             excluded.created_at)
      RETURNING k.charge_id)
    SELECT array_agg(w.charge_id) INTO v_charges FROM written w;
  ELSE
    WITH written AS (
      INSERT INTO makegood.provider_disputes AS k (id, provider, charge_id, status, amount_minor, currency, created_at)
      SELECT e.r->>'id', p_provider, e.r->>'charge_id', e.r->>'status', (e.r->>'amount_minor')::bigint, e.r->>'currency',
             makegood.provider_time(e.r->>'created_at')
        FROM jsonb_array_elements(p_rows) AS e(r)
      ON CONFLICT (id) DO UPDATE SET
        charge_id = excluded.charge_id, status = excluded.status, amount_minor = excluded.amount_minor,
        currency = excluded.currency, created_at = excluded.created_at, changed_xid = pg_current_xact_id()
      WHERE makegood.provider_rank('disputes', excluded.status) >= makegood.provider_rank('disputes', k.status)
        AND (k.charge_id, k.status, k.amount_minor, k.currency, k.created_at) IS DISTINCT FROM
            (excluded.charge_id, excluded.status, excluded.amount_minor, excluded.currency, excluded.created_at)
      RETURNING k.charge_id)
    SELECT array_agg(w.charge_id) INTO v_charges FROM written w;
  END IF;
  -- Its charge is looked at again, also where it was not plain before.
  UPDATE makegood.provider_charges AS c
     SET plain = false, changed_xid = pg_current_xact_id(),
         given_back = c.status = 'succeeded' AND NOT c.captures_open AND makegood.is_given_back(c.id, c.captured_minor)
           AND NOT EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.charge_id = c.id)
           AND NOT EXISTS (SELECT FROM makegood.provider_charges o
                            WHERE o.payment_ref = c.payment_ref AND o.id <> c.id AND o.status <> 'failed')
   WHERE c.id = ANY (v_charges);
  RETURN coalesce(cardinality(v_charges), 0);
END
$$;
COMMENT ON FUNCTION makegood.put_returns(text, text, jsonb) IS
  'Writes checked refunds or disputes and marks their charges; called by put_provider_rows, which has the turn.';

CREATE OR REPLACE FUNCTION makegood.put_balance(p_collection text, p_provider text, p_rows jsonb, p_only_new boolean)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_changed bigint;
BEGIN
  IF p_collection = 'payouts' THEN
    INSERT INTO makegood.provider_payouts AS k (id, provider, status, amount_minor, currency, created_at)
    SELECT e.r->>'id', p_provider, e.r->>'status', (e.r->>'amount_minor')::bigint, e.r->>'currency',
           makegood.provider_time(e.r->>'created_at')
      FROM jsonb_array_elements(p_rows) AS e(r)
    ON CONFLICT (id) DO UPDATE SET
      status = excluded.status, amount_minor = excluded.amount_minor, currency = excluded.currency,
      created_at = excluded.created_at, changed_xid = pg_current_xact_id()
    WHERE makegood.provider_rank('payouts', excluded.status) >= makegood.provider_rank('payouts', k.status)
      AND (k.status, k.amount_minor, k.currency, k.created_at) IS DISTINCT FROM
          (excluded.status, excluded.amount_minor, excluded.currency, excluded.created_at);
  ELSE
    -- A list does not say with which payout a movement left; once that is known it stays known.
    INSERT INTO makegood.provider_balance_transactions AS k
           (id, provider, kind, source_ref, payout_ref, amount_minor, fee_minor, net_minor, currency, created_at)
    SELECT e.r->>'id', p_provider, coalesce(CASE WHEN p_only_new THEN o.kind END, e.r->>'kind'),
           coalesce(CASE WHEN p_only_new THEN o.source_ref END, e.r->>'source_ref', o.source_ref),
           coalesce(nullif(e.r->>'payout_ref', ''), o.payout_ref), (e.r->>'amount_minor')::bigint,
           (e.r->>'fee_minor')::bigint, (e.r->>'net_minor')::bigint, e.r->>'currency', makegood.provider_time(e.r->>'created_at')
      FROM jsonb_array_elements(p_rows) AS e(r) LEFT JOIN makegood.provider_balance_transactions o ON o.id = e.r->>'id'
    ON CONFLICT (id) DO UPDATE SET
      kind = excluded.kind, source_ref = excluded.source_ref, payout_ref = excluded.payout_ref,
      amount_minor = excluded.amount_minor, fee_minor = excluded.fee_minor, net_minor = excluded.net_minor,
      currency = excluded.currency, created_at = excluded.created_at, changed_xid = pg_current_xact_id()
    WHERE (k.kind, k.source_ref, k.payout_ref, k.amount_minor, k.fee_minor, k.net_minor, k.currency, k.created_at)
      IS DISTINCT FROM (excluded.kind, excluded.source_ref, excluded.payout_ref, excluded.amount_minor, excluded.fee_minor,
                        excluded.net_minor, excluded.currency, excluded.created_at);
  END IF;
  GET DIAGNOSTICS v_changed = ROW_COUNT;
  RETURN v_changed;
END
$$;
COMMENT ON FUNCTION makegood.put_balance(text, text, jsonb, boolean) IS
  'Writes checked balance transactions or payouts; called by put_provider_rows, which has the turn.';

-- Whose books already have an id under another name.
CREATE OR REPLACE FUNCTION makegood.other_provider(p_collection text, p_id text, p_provider text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE p_collection
    WHEN 'charges' THEN (SELECT c.provider FROM makegood.provider_charges c WHERE c.id = p_id AND c.provider <> p_provider)
    WHEN 'refunds' THEN (SELECT c.provider FROM makegood.provider_refunds c WHERE c.id = p_id AND c.provider <> p_provider)
    WHEN 'disputes' THEN (SELECT c.provider FROM makegood.provider_disputes c WHERE c.id = p_id AND c.provider <> p_provider)
    WHEN 'payouts' THEN (SELECT c.provider FROM makegood.provider_payouts c WHERE c.id = p_id AND c.provider <> p_provider)
    ELSE (SELECT c.provider FROM makegood.provider_balance_transactions c WHERE c.id = p_id AND c.provider <> p_provider)
    END
$$;
COMMENT ON FUNCTION makegood.other_provider(text, text, text) IS 'The other provider whose books have this id, if one does.';

-- Rows as jsonb objects with the names of the table's columns; times as seconds since 1970 or ISO 8601. Returns
-- {rows, changed, duplicates: [ids], refused: [{id, reason}]}. Put twice, they change nothing the second time.
-- A row may have the line of the file that it comes from.
--   p_source    who brings them: kept with duplicates and with what is refused
--   p_only_new  what is known already stays as it is: for sources that know less than the provider's own interface
CREATE OR REPLACE FUNCTION makegood.put_provider_rows(
  p_collection text, p_rows jsonb, p_provider text DEFAULT 'stripe', p_source text DEFAULT 'call',
  p_only_new boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_kept jsonb;
  v_twice jsonb;
  v_refused jsonb;
  v_changed bigint := 0;
BEGIN
  IF p_collection IS NULL OR p_collection NOT IN ('charges', 'refunds', 'disputes', 'balance_transactions', 'payouts') THEN
    RAISE EXCEPTION 'the provider has no collection %', p_collection USING ERRCODE = 'MG005',
      HINT = 'It is one of charges, refunds, disputes, balance_transactions, payouts.';
  ELSIF jsonb_typeof(p_rows) IS DISTINCT FROM 'array' OR jsonb_array_length(p_rows) > 10000 THEN
    RAISE EXCEPTION 'rows must be an array of at most 10000' USING ERRCODE = 'MG005';
  END IF;
  -- An update, not a lock: whoever's snapshot is older than the turn before fails instead of missing its rows.
  UPDATE makegood.provider_turn SET turns = turns + 1;
  WITH looked AS MATERIALIZED (
    SELECT e.r, e.n, e.r->>'id' AS id,
           coalesce(makegood.refuse_provider_row(p_collection, e.r),
                    'its id is in the books of ' || makegood.other_provider(p_collection, e.r->>'id', p_provider)) AS reason
      FROM jsonb_array_elements(p_rows) WITH ORDINALITY AS e(r, n)
  ), ranked AS (
    -- Of the same id twice the copy that is further in its life stays, else the later one.
    SELECT l.r, l.id, row_number() OVER (PARTITION BY l.id ORDER BY
             makegood.provider_rank(p_collection, l.r->>'status', (l.r->>'captures_open')::boolean) DESC, l.n DESC) AS copy
      FROM looked l WHERE l.reason IS NULL
  )
  SELECT (SELECT coalesce(jsonb_agg(k.r), '[]') FROM ranked k WHERE k.copy = 1),
         (SELECT coalesce(jsonb_agg(DISTINCT k.id), '[]') FROM ranked k WHERE k.copy = 2),
         (SELECT coalesce(jsonb_agg(jsonb_build_object('id', l.id, 'n', l.n, 'line', l.r->'line', 'reason', l.reason, 'row', l.r)), '[]')
            FROM looked l WHERE l.reason IS NOT NULL)
    INTO v_kept, v_twice, v_refused;
  v_changed := CASE
    WHEN p_collection = 'charges' THEN makegood.put_charges(p_provider, v_kept, p_only_new)
    WHEN p_collection IN ('refunds', 'disputes') THEN makegood.put_returns(p_collection, p_provider, v_kept)
    ELSE makegood.put_balance(p_collection, p_provider, v_kept, p_only_new) END;
  INSERT INTO makegood.provider_duplicates AS d (provider, collection, id, source)
  SELECT p_provider, p_collection, t.id, p_source FROM jsonb_array_elements_text(v_twice) AS t(id) ORDER BY t.id
  ON CONFLICT (provider, collection, id, source) DO UPDATE SET seen_at = clock_timestamp();
  INSERT INTO makegood.provider_rejects AS j (source, position, provider, collection, reason, content)
  SELECT DISTINCT ON (1, 2) p_source,
         coalesce('line ' || (f.v->>'line'), left(p_collection || '/' || coalesce(f.v->>'id', 'row ' || (f.v->>'n')), 300)),
         p_provider, p_collection, left(f.v->>'reason', 1000), left(f.v->>'row', 4000)
    FROM jsonb_array_elements(v_refused) AS f(v)
  ON CONFLICT (source, position) DO UPDATE
    SET reason = excluded.reason, content = excluded.content, seen_at = clock_timestamp();
  -- What was refused before and is taken now is mended.
  DELETE FROM makegood.provider_rejects j USING jsonb_array_elements(v_kept) AS k(r)
   WHERE j.source = p_source AND j.position = left(p_collection || '/' || (k.r->>'id'), 300);
  RETURN jsonb_build_object('rows', jsonb_array_length(v_kept), 'changed', v_changed, 'duplicates', v_twice, 'refused',
    (SELECT coalesce(jsonb_agg(f.v - 'row'), '[]') FROM jsonb_array_elements(v_refused) AS f(v)));
END
$$;
COMMENT ON FUNCTION makegood.put_provider_rows(text, jsonb, text, text, boolean) IS
  'The one way into the provider''s books: checks, merges, keeps plain, and says what changed, came twice or was refused.';
