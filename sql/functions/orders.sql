-- Placing an order: its row and its workflow, in one transaction.
CREATE OR REPLACE FUNCTION makegood.place_order(
  p_order_id text, p_amount_minor bigint, p_currency text, p_customer_ref text DEFAULT NULL,
  p_context jsonb DEFAULT '{}', p_workflow_type text DEFAULT 'checkout', p_triggered_by text DEFAULT session_user)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO makegood.orders (id, workflow_type, amount_minor, currency, customer_ref)
  VALUES (p_order_id, p_workflow_type, p_amount_minor, p_currency, p_customer_ref)
  ON CONFLICT (id) DO NOTHING;
  -- Placed before with other parameters: this refuses, and takes the row with it.
  RETURN makegood.start_workflow(p_workflow_type, p_order_id, p_context, p_amount_minor, p_currency, p_triggered_by);
END
$$;
COMMENT ON FUNCTION makegood.place_order(text, bigint, text, text, jsonb, text, text) IS
  'Places an order and starts its workflow; the same call again returns the same workflow, other parameters are refused.';

-- The house's own orders follow their workflows, in the transaction that moves them, and so a run sees them. A team's own
-- table does not move with them: its workflows note that they ended, so that the next run looks at their orders. One that
-- ended badly notes it in any case: its order may be nobody's.
CREATE OR REPLACE FUNCTION makegood.follow_workflows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_own boolean;
BEGIN
  IF NOT EXISTS (SELECT FROM new_rows n WHERE n.to_state IN ('charged', 'completed', 'compensated', 'failed')) THEN
    RETURN NULL;
  END IF;
  -- Orders first: where there are none, nothing else is looked up.
  WITH followed AS MATERIALIZED (
    SELECT DISTINCT ON (n.workflow_id) n.workflow_id, o.id, o.workflow_type, n.to_state
      FROM new_rows n JOIN makegood.orders o ON o.id = n.entity_id
     WHERE n.to_state IN ('charged', 'completed', 'compensated', 'failed')
     ORDER BY n.workflow_id, n.seq DESC
  )
  UPDATE makegood.orders AS o
     SET status = CASE f.to_state WHEN 'charged' THEN 'paid' WHEN 'completed' THEN 'fulfilled' ELSE 'cancelled' END,
         payment_ref = coalesce(e.context #>> '{charge,payment_intent}', o.payment_ref),
         refunded_minor = CASE WHEN f.to_state = 'compensated' THEN coalesce(
             (SELECT sum(c.amount_minor) FROM makegood.compensations c WHERE c.workflow_id = e.id AND c.step = 'charge'), 0)
           ELSE o.refunded_minor END
    FROM followed f JOIN makegood.workflow_executions e ON e.id = f.workflow_id AND e.workflow_type = f.workflow_type
   WHERE o.id = f.id;
  -- Asked of the view's definition, not of the view: a team's own may be slow or broken, and an order must not wait for it.
  SELECT coalesce(bool_or(d.refobjid <> 'makegood.orders'::regclass), true) INTO v_own
    FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
   WHERE w.ev_class = 'makegood.reconcilable_orders'::regclass AND d.refclassid = 'pg_class'::regclass
     AND d.refobjid <> w.ev_class;
  INSERT INTO makegood.reconciliation_units AS u (unit, order_id, class, due_at, run_id)
  SELECT DISTINCT 'order:' || n.entity_id, n.entity_id, 'PENDING', clock_timestamp(), '00000000-0000-0000-0000-000000000000'::uuid
    FROM new_rows n WHERE n.to_state IN ('compensated', 'failed') OR (n.to_state = 'completed' AND v_own) ORDER BY 1
  ON CONFLICT (unit) DO UPDATE SET due_at = excluded.due_at;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION makegood.follow_workflows() IS
  'Trigger on transitions: the order says paid, fulfilled or cancelled when its workflow does; of a team''s own order it is noted that its workflow ended.';
