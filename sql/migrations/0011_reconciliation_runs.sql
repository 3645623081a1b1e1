-- What a run may rely on, and what it looks at again.

-- Books that come as files have no fetch that moves their watermark, and are older when they come.
ALTER TABLE makegood.provider_sync ADD COLUMN fetched_at timestamptz;
UPDATE makegood.provider_sync SET fetched_at = updated_at WHERE fence > 0 AND watermark IS NOT NULL;
COMMENT ON COLUMN makegood.provider_sync.fetched_at IS
  'When a fetch last came to its end; null where none ever did: then the watermark is what a person said of files.';

-- A payout that was made by hand has no parts that could be asked for; it is read, and says nothing.
ALTER TABLE makegood.provider_payouts_read ADD COLUMN with_parts boolean NOT NULL DEFAULT true;
UPDATE makegood.provider_payouts_read AS r SET with_parts = false
 WHERE NOT EXISTS (SELECT FROM makegood.provider_balance_transactions b WHERE b.payout_ref = r.payout_id);
COMMENT ON COLUMN makegood.provider_payouts_read.with_parts IS 'False where the provider does not say what it is made of: made by hand.';

-- It takes the run's time now; functions are installed anew after the migration.
DROP FUNCTION IF EXISTS makegood.lay_out(makegood.reconciliation_runs);

-- The captures of one charge, which a report has line by line.
CREATE INDEX provider_balance_transactions_captures ON makegood.provider_balance_transactions (source_ref)
  WHERE kind = 'charge' AND source_ref IS NOT NULL;

-- An order that is given another payment, or is gone, leaves a charge behind that nobody would look at again: the charge
-- itself did not change, and a plain pair has no row in reconciliation_units.
CREATE FUNCTION makegood.stamp_payment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  v_payment text := to_jsonb(OLD)->>TG_ARGV[0];
BEGIN
  UPDATE makegood.provider_charges AS c SET changed_xid = pg_current_xact_id()
   WHERE c.payment_ref = v_payment OR c.id = v_payment;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION makegood.stamp_payment() IS
  'Trigger for a table behind reconcilable_orders, with the name of its payment''s column: the charge of a payment that an order let go of is looked at by the next run.';
CREATE TRIGGER orders_stamp_payment AFTER UPDATE OF payment_ref ON makegood.orders
  FOR EACH ROW WHEN (OLD.payment_ref IS NOT NULL AND NEW.payment_ref IS DISTINCT FROM OLD.payment_ref)
  EXECUTE FUNCTION makegood.stamp_payment('payment_ref');
CREATE TRIGGER orders_stamp_payment_gone AFTER DELETE ON makegood.orders
  FOR EACH ROW WHEN (OLD.payment_ref IS NOT NULL) EXECUTE FUNCTION makegood.stamp_payment('payment_ref');
ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_payment;
ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_payment_gone;
COMMENT ON COLUMN makegood.reconcilable_orders.payment_ref IS
  'The provider''s id of its payment, or null. Where your shop overwrites it, or deletes orders, your table has the trigger makegood.stamp_payment(''its column'') AFTER UPDATE OR DELETE FOR EACH ROW.';
