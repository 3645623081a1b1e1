-- Settlement reports. A batch of lines, what was kept aside of it, and how far the file is are one transaction; the same file
-- again goes on where it was, or, once done, is read anew and changes nothing.

CREATE OR REPLACE FUNCTION makegood.begin_import(p_provider text, p_fingerprint text, p_file_name text)
RETURNS TABLE (id uuid, fence bigint, lines_done bigint, counts jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id uuid;
  v_done boolean;
BEGIN
  INSERT INTO makegood.provider_imports AS i (id, provider, fingerprint, file_name)
  VALUES (makegood.new_id(), p_provider, p_fingerprint, p_file_name)
  ON CONFLICT (fingerprint) DO UPDATE SET fence = i.fence + 1, file_name = excluded.file_name
  RETURNING i.id, i.state = 'done' INTO v_id, v_done;
  IF v_done THEN
    DELETE FROM makegood.provider_rejects r WHERE r.source = 'import:' || v_id;
    UPDATE makegood.provider_imports AS i SET state = 'running', finished_at = NULL, lines_done = 0, counts = '{}'
     WHERE i.id = v_id;
  END IF;
  RETURN QUERY SELECT i.id, i.fence, i.lines_done, i.counts FROM makegood.provider_imports i WHERE i.id = v_id;
END
$$;
COMMENT ON FUNCTION makegood.begin_import(text, text, text) IS
  'Begins the import of a file, or takes it up where it was; returns the fence and the lines that are done.';

-- One batch: items {line, collection, only_new, row}, and what could not be read {line, reason, content}. Null: another
-- process has the import by now, and nothing was written.
CREATE OR REPLACE FUNCTION makegood.put_import_batch(
  p_import_id uuid, p_fence bigint, p_items jsonb, p_rejects jsonb, p_lines_done bigint)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_provider text;
  v_source text := 'import:' || p_import_id;
  v_kept jsonb;
  v_twice jsonb;
  v_put jsonb;
  v_group record;
  v_rows bigint := 0;
  v_changed bigint := 0;
  v_refused jsonb := '[]';
  v_said jsonb;
  v_captured jsonb;
BEGIN
  UPDATE makegood.provider_imports AS i SET lines_done = p_lines_done
   WHERE i.id = p_import_id AND i.fence = p_fence AND i.state = 'running' AND i.lines_done < p_lines_done
  RETURNING i.provider INTO v_provider;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- The same id on a later line is dropped and told; what is only derived from a line may come on many.
  WITH item AS MATERIALIZED (
    SELECT e.v, e.v->>'collection' AS collection, e.v->'row'->>'id' AS id, (e.v->>'line')::bigint AS line,
           coalesce((e.v->>'derived')::boolean, false) AS derived
      FROM jsonb_array_elements(p_items) AS e(v)
  ), first AS (
    INSERT INTO makegood.provider_import_ids AS k (import_id, collection, id, line)
    SELECT DISTINCT ON (i.collection, i.id) p_import_id, i.collection, i.id, i.line FROM item i
     WHERE NOT i.derived AND length(i.id) BETWEEN 1 AND 255 ORDER BY i.collection, i.id, i.line
    ON CONFLICT (import_id, collection, id) DO NOTHING
    RETURNING k.collection, k.id, k.line
  )
  SELECT coalesce(jsonb_agg(i.v) FILTER (WHERE i.derived OR f.line IS NOT NULL OR length(i.id) NOT BETWEEN 1 AND 255
                                               OR i.id IS NULL), '[]'),
         coalesce(jsonb_agg(jsonb_build_object('collection', i.collection, 'id', i.id, 'line', i.line))
                    FILTER (WHERE NOT i.derived AND f.line IS NULL AND length(i.id) BETWEEN 1 AND 255), '[]')
    INTO v_kept, v_twice
    FROM item i LEFT JOIN first f ON f.collection = i.collection AND f.id = i.id AND f.line = i.line;
  FOR v_group IN
    SELECT e.v->>'collection' AS collection, coalesce((e.v->>'only_new')::boolean, false) AS only_new,
           coalesce((e.v->>'derived')::boolean, false) AS derived,
           jsonb_agg(e.v->'row' || jsonb_build_object('line', e.v->'line') ORDER BY (e.v->>'line')::bigint) AS rows
      FROM jsonb_array_elements(v_kept) AS e(v) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
  LOOP
    IF v_group.derived THEN  -- of several lines about one object the one that is furthest in its life, else the first
      SELECT jsonb_agg(d.r) INTO v_group.rows FROM (
        SELECT DISTINCT ON (r.r->>'id') r.r FROM jsonb_array_elements(v_group.rows) WITH ORDINALITY AS r(r, n)
         ORDER BY r.r->>'id', makegood.provider_rank(v_group.collection, r.r->>'status') DESC, r.n) AS d;
    END IF;
    v_put := makegood.put_provider_rows(v_group.collection, v_group.rows, v_provider, v_source, v_group.only_new);
    v_rows := v_rows + (v_put->>'rows')::bigint;
    v_changed := v_changed + (v_put->>'changed')::bigint;
    v_refused := v_refused || (v_put->'refused');
  END LOOP;
  -- A charge that was captured in parts has a line for each, in this batch, in another, or in next month's file: what it
  -- captured is their sum, as far as they are in its own currency. More than is known is news, and less never is.
  SELECT jsonb_agg(jsonb_build_object('id', c.id, 'status', c.status, 'amount_minor', greatest(c.amount_minor, s.minor),
           'captured_minor', s.minor, 'currency', c.currency, 'livemode', c.livemode, 'captures_open', c.captures_open,
           'created_at', c.created_at))
    INTO v_captured
    FROM (SELECT DISTINCT e.v->'row'->>'id' AS id FROM jsonb_array_elements(v_kept) AS e(v)
           WHERE e.v->>'collection' = 'charges' AND (e.v->>'derived')::boolean) AS i
    JOIN makegood.provider_charges c ON c.id = i.id AND c.provider = v_provider AND c.status = 'succeeded'
   CROSS JOIN LATERAL (
     SELECT sum(b.amount_minor) AS minor, count(*) AS n FROM makegood.provider_balance_transactions b
      WHERE b.source_ref = c.id AND b.kind = 'charge' AND b.currency = c.currency) AS s
   WHERE s.n > 1 AND s.minor > c.captured_minor;
  IF v_captured IS NOT NULL THEN
    v_put := makegood.put_provider_rows('charges', v_captured, v_provider, v_source);
    v_changed := v_changed + (v_put->>'changed')::bigint;
  END IF;
  INSERT INTO makegood.provider_duplicates AS d (provider, collection, id, source)
  SELECT DISTINCT v_provider, t.v->>'collection', t.v->>'id', v_source FROM jsonb_array_elements(v_twice) AS t(v)
  ON CONFLICT (provider, collection, id, source) DO UPDATE SET seen_at = clock_timestamp();
  INSERT INTO makegood.provider_rejects AS j (source, position, provider, collection, reason, content)
  SELECT v_source, 'line ' || (f.v->>'line'), v_provider, 'file', left(f.v->>'reason', 1000), left(f.v->>'content', 4000)
    FROM jsonb_array_elements(p_rejects) AS f(v)
  ON CONFLICT (source, position) DO UPDATE
    SET reason = excluded.reason, content = excluded.content, seen_at = clock_timestamp();
  v_said := jsonb_build_object('rows', v_rows, 'changed', v_changed, 'duplicates', jsonb_array_length(v_twice), 'rejected',
    (SELECT count(DISTINCT x.line) FROM (
      SELECT f.v->>'line' AS line FROM jsonb_array_elements(p_rejects) AS f(v)
      UNION SELECT f.v->>'line' FROM jsonb_array_elements(v_refused) AS f(v)) AS x));
  UPDATE makegood.provider_imports AS i SET counts = makegood.sum_parts(jsonb_build_object('before', i.counts, 'now', v_said))
   WHERE i.id = p_import_id;
  RETURN v_said || jsonb_build_object('refused', v_refused, 'twice', v_twice);
END
$$;
COMMENT ON FUNCTION makegood.put_import_batch(uuid, bigint, jsonb, jsonb, bigint) IS
  'Stores one batch of a file''s lines with how far the file is, under the fence; null when another process has the import.';

CREATE OR REPLACE FUNCTION makegood.finish_import(p_import_id uuid, p_fence bigint) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_counts jsonb;
BEGIN
  UPDATE makegood.provider_imports AS i SET state = 'done', finished_at = clock_timestamp()
   WHERE i.id = p_import_id AND i.fence = p_fence AND i.state = 'running'
  RETURNING i.counts INTO v_counts;
  IF FOUND THEN
    DELETE FROM makegood.provider_import_ids k WHERE k.import_id = p_import_id;
  ELSE
    SELECT i.counts INTO v_counts FROM makegood.provider_imports i
     WHERE i.id = p_import_id AND i.fence = p_fence AND i.state = 'done';
  END IF;
  RETURN v_counts;
END
$$;
COMMENT ON FUNCTION makegood.finish_import(uuid, bigint) IS
  'Ends an import and returns its counts; told twice it is the same end. Null when another process has it.';

-- Up to when the books are complete with this file, for the collections that it brings. That is a person's word, or that
-- of whoever delivers the files: a file's own last row proves nothing. Without it (p_until null) the collections are only
-- known to exist, and a run judges nothing that could rest on them.
--   p_from  the file has everything from here on: where the books end before it, a file is missing and nothing moves
-- The word counts like a fetch: never back, not where lines were kept aside, and not beside one.
CREATE OR REPLACE FUNCTION makegood.complete_import(
  p_import_id uuid, p_collections text[], p_until timestamptz, p_from timestamptz DEFAULT NULL)
RETURNS TABLE (collection text, watermark timestamptz, reason text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  i makegood.provider_imports;
  s makegood.provider_sync;
  v_name text;
  v_reason text;
BEGIN
  IF p_until > clock_timestamp() THEN
    RAISE EXCEPTION 'books cannot be complete until %: that is still to come', p_until USING ERRCODE = 'MG005';
  ELSIF p_from >= p_until THEN
    RAISE EXCEPTION 'a file cannot have everything from % until %', p_from, p_until USING ERRCODE = 'MG005';
  END IF;
  SELECT * INTO i FROM makegood.provider_imports q WHERE q.id = p_import_id FOR UPDATE;
  FOREACH v_name IN ARRAY p_collections LOOP
    INSERT INTO makegood.provider_sync (provider, collection) VALUES (i.provider, v_name) ON CONFLICT DO NOTHING;
    SELECT * INTO s FROM makegood.provider_sync q WHERE q.provider = i.provider AND q.collection = v_name FOR UPDATE;
    v_reason := CASE
      WHEN s.fetched_at IS NOT NULL THEN 'it is fetched: its own fetch says how far it is complete'
      WHEN p_until IS NULL THEN NULL
      WHEN i.state <> 'done' THEN 'the import did not come to its end'
      WHEN (i.counts->>'rejected')::bigint > 0 THEN format('%s lines were kept aside', i.counts->>'rejected')
      WHEN p_from > s.watermark
        THEN format('what came between %s and %s is not here', s.watermark, p_from) END;
    IF v_reason IS NULL AND p_until IS NOT NULL THEN
      UPDATE makegood.provider_sync AS q
         SET watermark = greatest(q.watermark, p_until), error = NULL, updated_at = clock_timestamp()
       WHERE q.provider = s.provider AND q.collection = s.collection RETURNING q.* INTO s;
    END IF;
    RETURN QUERY SELECT v_name, s.watermark, CASE WHEN p_until IS NOT NULL THEN v_reason END;
  END LOOP;
END
$$;
COMMENT ON FUNCTION makegood.complete_import(uuid, text[], timestamptz, timestamptz) IS
  'Moves the watermark of what a file brings to where its books are said to be complete; returns where each is now, and why it did not move.';
