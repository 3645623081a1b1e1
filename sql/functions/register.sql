-- Types are data: their states, deadlines and legal edges, which the guards on the tables read.

-- Makes a workflow type known, or adds to it. Nothing is taken away, because workflows under way may
-- still stand in an old state; a state cannot change its meaning.
CREATE OR REPLACE FUNCTION makegood.register_workflow(p_definition jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_type text := p_definition->>'name';
  v_bad text;
BEGIN
  SELECT s.state INTO v_bad
    FROM jsonb_to_recordset(p_definition->'states') AS d(state text, kind text, step text)
    JOIN makegood.workflow_states s ON s.workflow_type = v_type AND s.state = d.state
   WHERE (s.kind, s.step) IS DISTINCT FROM (d.kind, d.step) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'state % of workflow type % already means something else', v_bad, v_type
      USING ERRCODE = 'MG008', HINT = 'Give the state, or the type, a new name.';
  END IF;

  INSERT INTO makegood.workflow_types AS t (name, definition) VALUES (v_type, p_definition)
    ON CONFLICT (name) DO UPDATE SET definition = EXCLUDED.definition, registered_at = clock_timestamp()
    WHERE t.definition <> EXCLUDED.definition;
  INSERT INTO makegood.workflow_states AS s (workflow_type, state, kind, step, stuck_after)
    SELECT v_type, d.state, d.kind, d.step, make_interval(secs => d.stuck_after_seconds)
      FROM jsonb_to_recordset(p_definition->'states')
        AS d(state text, kind text, step text, stuck_after_seconds double precision)
    ON CONFLICT (workflow_type, state) DO UPDATE SET stuck_after = EXCLUDED.stuck_after
    WHERE s.stuck_after <> EXCLUDED.stuck_after;
  INSERT INTO makegood.workflow_edges (workflow_type, from_state, to_state)
    SELECT v_type, d->>0, d->>1 FROM jsonb_array_elements(p_definition->'edges') AS d
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION makegood.register_workflow(jsonb) IS
  'Makes a workflow type known: {"name", "states": [{state, kind, step, stuck_after_seconds}], "edges": [[from, to]]}.';
