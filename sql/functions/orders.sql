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
