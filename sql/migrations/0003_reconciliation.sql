-- Orders, the provider's books as last seen, and what reconciling the two has found.

-- Which transaction wrote a row last. A time stamp cannot say what is new: a transaction that began earlier may commit
-- later. By its transaction's number a reader knows exactly what it has not seen yet (pg_snapshot_xmin).
CREATE FUNCTION makegood.stamp_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.changed_xid := pg_current_xact_id();
  NEW.changed_at := clock_timestamp();
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION makegood.stamp_change() IS
  'Trigger for a table behind reconcilable_orders: every change carries its time and its transaction, so that no run misses it.';

CREATE TABLE makegood.orders (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 150),
  workflow_type text NOT NULL DEFAULT 'checkout',
  status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'fulfilled', 'cancelled')),
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  currency text NOT NULL,
  payment_ref text CHECK (length(payment_ref) BETWEEN 1 AND 255),
  customer_ref text CHECK (length(customer_ref) BETWEEN 1 AND 255),
  refunded_minor bigint NOT NULL DEFAULT 0 CHECK (refunded_minor >= 0),
  dispute_known boolean NOT NULL DEFAULT false,
  written_off_minor bigint NOT NULL DEFAULT 0 CHECK (written_off_minor >= 0),
  partial_shipment boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at timestamptz,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX orders_payment ON makegood.orders (payment_ref) WHERE payment_ref IS NOT NULL;
CREATE INDEX orders_customer ON makegood.orders (customer_ref) WHERE customer_ref IS NOT NULL;
CREATE INDEX orders_changed ON makegood.orders (changed_xid);
CREATE TRIGGER orders_stamp_change BEFORE UPDATE ON makegood.orders
  FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION makegood.stamp_change();
CREATE TRIGGER orders_currency_exists AFTER INSERT ON makegood.orders
  FOR EACH ROW EXECUTE FUNCTION makegood.check_currency_exists();
ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_change;
ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_currency_exists;

COMMENT ON TABLE makegood.orders IS 'The orders of a house that has no table of its own; read through reconcilable_orders.';
COMMENT ON COLUMN makegood.orders.id IS 'The order, as in workflow_executions.entity_id.';
COMMENT ON COLUMN makegood.orders.workflow_type IS 'The type of the workflow that carries it out.';
COMMENT ON COLUMN makegood.orders.status IS 'pending, paid, fulfilled or cancelled; follows its workflow.';
COMMENT ON COLUMN makegood.orders.amount_minor IS 'What it costs, in minor units.';
COMMENT ON COLUMN makegood.orders.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.orders.payment_ref IS 'The provider''s id of its payment, once there is one.';
COMMENT ON COLUMN makegood.orders.customer_ref IS 'Whose it is.';
COMMENT ON COLUMN makegood.orders.refunded_minor IS 'What our books say was given back.';
COMMENT ON COLUMN makegood.orders.dispute_known IS 'Our books know that the payment is disputed.';
COMMENT ON COLUMN makegood.orders.written_off_minor IS 'What our books have written off after a lost dispute.';
COMMENT ON COLUMN makegood.orders.partial_shipment IS 'Less than all was shipped, so less may be captured.';
COMMENT ON COLUMN makegood.orders.created_at IS 'When it was placed.';
COMMENT ON COLUMN makegood.orders.changed_at IS 'When it was last changed; null if never.';
COMMENT ON COLUMN makegood.orders.changed_xid IS 'The transaction that last changed it.';

-- What reconciliation reads. A team points it at its own table:
--   CREATE OR REPLACE VIEW makegood.reconcilable_orders AS SELECT … FROM shop.orders
-- with these columns in this order. It is created here, once, and never again, so that a team's own stays.
CREATE VIEW makegood.reconcilable_orders AS
SELECT o.id AS order_id, o.workflow_type, o.status, o.amount_minor, o.currency, o.payment_ref, o.customer_ref,
       o.refunded_minor, o.dispute_known, o.written_off_minor, o.partial_shipment, o.created_at,
       coalesce(o.changed_at, o.created_at) AS changed_at, o.changed_xid
  FROM makegood.orders o;
COMMENT ON VIEW makegood.reconcilable_orders IS
  'The contract of reconciliation: every order once. Redefine it over your own table; `makegood doctor` checks it.';
COMMENT ON COLUMN makegood.reconcilable_orders.order_id IS 'The order, unique.';
COMMENT ON COLUMN makegood.reconcilable_orders.workflow_type IS 'The type of the workflow that carries it out, or null.';
COMMENT ON COLUMN makegood.reconcilable_orders.status IS 'pending, paid, fulfilled or cancelled.';
COMMENT ON COLUMN makegood.reconcilable_orders.amount_minor IS 'What it costs, in minor units.';
COMMENT ON COLUMN makegood.reconcilable_orders.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.reconcilable_orders.payment_ref IS 'The provider''s id of its payment, or null.';
COMMENT ON COLUMN makegood.reconcilable_orders.customer_ref IS 'Whose it is, or null.';
COMMENT ON COLUMN makegood.reconcilable_orders.refunded_minor IS 'What your books say was given back; 0 if nothing.';
COMMENT ON COLUMN makegood.reconcilable_orders.dispute_known IS 'Your books know of a dispute; false if they do not keep it.';
COMMENT ON COLUMN makegood.reconcilable_orders.written_off_minor IS 'What your books have written off; 0 if nothing.';
COMMENT ON COLUMN makegood.reconcilable_orders.partial_shipment IS 'Less than all was shipped.';
COMMENT ON COLUMN makegood.reconcilable_orders.created_at IS 'When it was placed.';
COMMENT ON COLUMN makegood.reconcilable_orders.changed_at IS 'When it was last changed; a verdict waits its grace from then on.';
COMMENT ON COLUMN makegood.reconcilable_orders.changed_xid IS
  'The transaction that last changed it: a column of xid8, default pg_current_xact_id(), kept by the trigger makegood.stamp_change().';

-- The provider's books. Amounts are in our minor units, times are the provider's own.
CREATE TABLE makegood.provider_charges (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  payment_ref text NOT NULL CHECK (length(payment_ref) BETWEEN 1 AND 255),
  order_ref text CHECK (length(order_ref) <= 255),
  customer_ref text CHECK (length(customer_ref) <= 255),
  status text NOT NULL CHECK (status IN ('succeeded', 'authorized', 'lapsed', 'pending', 'failed')),
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  captured_minor bigint NOT NULL CHECK (captured_minor >= 0),
  currency text NOT NULL,
  livemode boolean NOT NULL,
  capture_before timestamptz,
  captures_open boolean NOT NULL DEFAULT false,
  plain boolean NOT NULL,
  given_back boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  CHECK (captured_minor = 0 OR status = 'succeeded'),
  CHECK (NOT (plain OR given_back) OR (status = 'succeeded' AND NOT captures_open)),
  CHECK (NOT (plain AND given_back))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX provider_charges_order ON makegood.provider_charges (order_ref) WHERE order_ref IS NOT NULL;
CREATE INDEX provider_charges_changed ON makegood.provider_charges (changed_xid);
CREATE INDEX provider_charges_payment ON makegood.provider_charges (payment_ref);
-- Charges that name no order: whether two orders claim their payment has to be looked at.
CREATE INDEX provider_charges_unnamed ON makegood.provider_charges (payment_ref) WHERE order_ref IS NULL;
-- At most one plain charge per payment: the join of plain charges with orders can then trust each pair by itself.
CREATE UNIQUE INDEX provider_charges_plain ON makegood.provider_charges (payment_ref) WHERE plain;
CREATE TABLE makegood.provider_refunds (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  charge_id text NOT NULL CHECK (length(charge_id) BETWEEN 1 AND 255),
  compensation_ref text CHECK (length(compensation_ref) <= 255),
  status text NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed', 'canceled', 'requires_action')),
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  currency text NOT NULL,
  created_at timestamptz NOT NULL,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX provider_refunds_charge ON makegood.provider_refunds (charge_id);
CREATE INDEX provider_refunds_changed ON makegood.provider_refunds (changed_xid);
CREATE TABLE makegood.provider_disputes (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  charge_id text NOT NULL CHECK (length(charge_id) BETWEEN 1 AND 255),
  status text NOT NULL CHECK (status IN ('open', 'won', 'lost')),
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  currency text NOT NULL,
  created_at timestamptz NOT NULL,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX provider_disputes_charge ON makegood.provider_disputes (charge_id);
CREATE INDEX provider_disputes_changed ON makegood.provider_disputes (changed_xid);
CREATE TABLE makegood.provider_balance_transactions (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  kind text NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),
  source_ref text CHECK (length(source_ref) <= 255),
  payout_ref text CHECK (length(payout_ref) <= 255),
  amount_minor bigint NOT NULL,
  fee_minor bigint NOT NULL,
  net_minor bigint NOT NULL,
  currency text NOT NULL,
  created_at timestamptz NOT NULL,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX provider_balance_transactions_payout ON makegood.provider_balance_transactions (payout_ref)
  WHERE payout_ref IS NOT NULL;
CREATE INDEX provider_balance_transactions_changed ON makegood.provider_balance_transactions (changed_xid);
CREATE TABLE makegood.provider_payouts (
  id text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  status text NOT NULL CHECK (status IN ('pending', 'in_transit', 'paid', 'failed', 'canceled')),
  amount_minor bigint NOT NULL,
  currency text NOT NULL,
  created_at timestamptz NOT NULL,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX provider_payouts_changed ON makegood.provider_payouts (changed_xid);
-- How far each collection is complete, and who is fetching it.
CREATE TABLE makegood.provider_sync (
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  collection text NOT NULL
    CHECK (collection IN ('charges', 'refunds', 'disputes', 'balance_transactions', 'payouts')),
  watermark timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  lease_owner text,
  lease_until timestamptz,
  error text CHECK (length(error) <= 2000),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (provider, collection),
  CHECK ((lease_owner IS NULL) = (lease_until IS NULL))
);

COMMENT ON TABLE makegood.provider_charges IS 'The provider''s charges as last seen; one row per charge however often it arrives.';
COMMENT ON COLUMN makegood.provider_charges.id IS 'The provider''s id of the charge.';
COMMENT ON COLUMN makegood.provider_charges.provider IS 'Whose books: stripe, or the name given to an import.';
COMMENT ON COLUMN makegood.provider_charges.payment_ref IS 'The payment it belongs to (Stripe: the payment intent); its own id where there is none.';
COMMENT ON COLUMN makegood.provider_charges.order_ref IS 'The order that its metadata names.';
COMMENT ON COLUMN makegood.provider_charges.customer_ref IS 'The customer that it names.';
COMMENT ON COLUMN makegood.provider_charges.status IS 'succeeded (captured), authorized (not captured yet), lapsed (never captured), pending or failed.';
COMMENT ON COLUMN makegood.provider_charges.amount_minor IS 'What was authorised.';
COMMENT ON COLUMN makegood.provider_charges.captured_minor IS 'What was taken.';
COMMENT ON COLUMN makegood.provider_charges.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.provider_charges.livemode IS 'Real money, or a test.';
COMMENT ON COLUMN makegood.provider_charges.capture_before IS 'When the authorisation lapses.';
COMMENT ON COLUMN makegood.provider_charges.captures_open IS 'More may be captured.';
COMMENT ON COLUMN makegood.provider_charges.plain IS
  'Captured for good, with no refund or dispute on file and no other charge of the same payment: nothing to think about beyond its amount. Kept by put_provider_rows.';
COMMENT ON COLUMN makegood.provider_charges.given_back IS
  'As plain, but for refunds that succeeded or are pending and together are all that was captured; none failed. Kept by put_provider_rows.';
COMMENT ON COLUMN makegood.provider_charges.created_at IS 'When, by the provider''s clock.';
COMMENT ON COLUMN makegood.provider_charges.changed_xid IS 'The transaction that last changed the row here.';
COMMENT ON TABLE makegood.provider_refunds IS 'The provider''s refunds as last seen.';
COMMENT ON COLUMN makegood.provider_refunds.id IS 'The provider''s id of the refund.';
COMMENT ON COLUMN makegood.provider_refunds.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_refunds.charge_id IS 'The charge that is given back.';
COMMENT ON COLUMN makegood.provider_refunds.compensation_ref IS 'The compensation or remedy that its metadata names.';
COMMENT ON COLUMN makegood.provider_refunds.status IS 'pending, succeeded, failed, canceled or requires_action.';
COMMENT ON COLUMN makegood.provider_refunds.amount_minor IS 'How much.';
COMMENT ON COLUMN makegood.provider_refunds.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.provider_refunds.created_at IS 'When, by the provider''s clock.';
COMMENT ON COLUMN makegood.provider_refunds.changed_xid IS 'The transaction that last changed the row here.';
COMMENT ON TABLE makegood.provider_disputes IS 'The provider''s disputes as last seen.';
COMMENT ON COLUMN makegood.provider_disputes.id IS 'The provider''s id of the dispute.';
COMMENT ON COLUMN makegood.provider_disputes.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_disputes.charge_id IS 'The charge that is disputed.';
COMMENT ON COLUMN makegood.provider_disputes.status IS 'open (warnings too), won or lost.';
COMMENT ON COLUMN makegood.provider_disputes.amount_minor IS 'How much.';
COMMENT ON COLUMN makegood.provider_disputes.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.provider_disputes.created_at IS 'When, by the provider''s clock.';
COMMENT ON COLUMN makegood.provider_disputes.changed_xid IS 'The transaction that last changed the row here.';
COMMENT ON TABLE makegood.provider_balance_transactions IS 'Movements of the provider''s balance: fees, and what a payout is made of.';
COMMENT ON COLUMN makegood.provider_balance_transactions.id IS 'The provider''s id of the movement.';
COMMENT ON COLUMN makegood.provider_balance_transactions.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_balance_transactions.kind IS 'charge, refund, adjustment, payout or another of the provider''s words.';
COMMENT ON COLUMN makegood.provider_balance_transactions.source_ref IS 'The charge, refund, dispute or payout behind it.';
COMMENT ON COLUMN makegood.provider_balance_transactions.payout_ref IS 'The payout that it was paid out with.';
COMMENT ON COLUMN makegood.provider_balance_transactions.amount_minor IS 'Gross; may be below zero.';
COMMENT ON COLUMN makegood.provider_balance_transactions.fee_minor IS 'The provider''s fee.';
COMMENT ON COLUMN makegood.provider_balance_transactions.net_minor IS 'Gross less fee.';
COMMENT ON COLUMN makegood.provider_balance_transactions.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.provider_balance_transactions.created_at IS 'When, by the provider''s clock.';
COMMENT ON COLUMN makegood.provider_balance_transactions.changed_xid IS 'The transaction that last changed the row here.';
COMMENT ON TABLE makegood.provider_payouts IS 'Money that the provider has sent to the bank.';
COMMENT ON COLUMN makegood.provider_payouts.id IS 'The provider''s id of the payout.';
COMMENT ON COLUMN makegood.provider_payouts.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_payouts.status IS 'pending, in_transit, paid, failed or canceled.';
COMMENT ON COLUMN makegood.provider_payouts.amount_minor IS 'How much; below zero where money was fetched.';
COMMENT ON COLUMN makegood.provider_payouts.currency IS 'ISO 4217, capitals.';
COMMENT ON COLUMN makegood.provider_payouts.created_at IS 'When, by the provider''s clock.';
COMMENT ON COLUMN makegood.provider_payouts.changed_xid IS 'The transaction that last changed the row here.';
COMMENT ON TABLE makegood.provider_sync IS 'How far the provider''s books are complete here, per collection.';
COMMENT ON COLUMN makegood.provider_sync.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_sync.collection IS 'charges, refunds, disputes, balance_transactions or payouts.';
COMMENT ON COLUMN makegood.provider_sync.watermark IS 'Everything the provider has from before this is here; null before the first complete fetch.';
COMMENT ON COLUMN makegood.provider_sync.fence IS 'Rises with each claim; a write under an older one is refused.';
COMMENT ON COLUMN makegood.provider_sync.lease_owner IS 'Who is fetching.';
COMMENT ON COLUMN makegood.provider_sync.lease_until IS 'Until when.';
COMMENT ON COLUMN makegood.provider_sync.error IS 'Why the last fetch did not complete; null when it did.';
COMMENT ON COLUMN makegood.provider_sync.updated_at IS 'When something was last heard of it.';

-- Runs of the reconciliation, what they found, and where each unit that is not plainly matched stands.
CREATE TABLE makegood.reconciliation_runs (
  id uuid PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('incremental', 'full', 'window')),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'matched', 'failed')),
  terms jsonb NOT NULL CHECK (jsonb_typeof(terms) = 'object'),
  watermark timestamptz,
  stale text,
  since_xid xid8,
  until_xid xid8,
  looked_at bigint NOT NULL DEFAULT 0,
  opened bigint NOT NULL DEFAULT 0,
  closed bigint NOT NULL DEFAULT 0,
  missed bigint,
  error text CHECK (length(error) <= 2000),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  CHECK ((state = 'running') = (finished_at IS NULL))
);
CREATE INDEX reconciliation_runs_latest ON makegood.reconciliation_runs (started_at DESC);
CREATE TABLE makegood.reconciliation_totals (
  run_id uuid NOT NULL REFERENCES makegood.reconciliation_runs (id) ON DELETE CASCADE,
  currency text NOT NULL,
  bucket text NOT NULL CHECK (bucket ~ '^(provider|matched|pending|D[0-9]{2})$'),
  charges bigint NOT NULL,
  amount_minor numeric NOT NULL,
  PRIMARY KEY (run_id, currency, bucket)
);
-- Only what is not a plain pair of an order and its charge: a few rows in a hundred.
CREATE TABLE makegood.reconciliation_units (
  unit text PRIMARY KEY,
  order_id text,
  charge_id text,
  class text NOT NULL CHECK (class ~ '^(MATCHED|PENDING|D[0-9]{2})$'),
  due_at timestamptz,
  run_id uuid NOT NULL
);
CREATE INDEX reconciliation_units_order ON makegood.reconciliation_units (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX reconciliation_units_due ON makegood.reconciliation_units (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE makegood.reconciliation_findings (
  id uuid PRIMARY KEY,
  unit text NOT NULL CHECK (length(unit) BETWEEN 1 AND 300),
  class text NOT NULL CHECK (class ~ '^D[0-9]{2}$'),
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'acknowledged', 'remedying', 'resolved', 'ignored')),
  order_id text,
  charge_id text,
  customer_ref text,
  amount_at_risk_minor bigint NOT NULL CHECK (amount_at_risk_minor >= 0),
  currency text,
  remedy text NOT NULL CHECK (remedy IN ('resume', 'refund', 'retry_refund', 'correct', 'record', 'stop', 'wait', 'human')),
  details jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(details) = 'object' AND pg_column_size(details) <= 16384),
  first_seen_run uuid NOT NULL,
  last_seen_run uuid NOT NULL,
  first_seen_at timestamptz NOT NULL,
  last_seen_at timestamptz NOT NULL,
  runs_seen integer NOT NULL DEFAULT 1 CHECK (runs_seen >= 1),
  reopened integer NOT NULL DEFAULT 0 CHECK (reopened >= 0),
  resolved_at timestamptz,
  resolution text CHECK (length(resolution) <= 200),
  ignored_until timestamptz,
  note text CHECK (length(note) <= 2000),
  -- One row per discrepancy however often it is seen, closed or broken again.
  UNIQUE (unit, class),
  CHECK ((state = 'resolved') = (resolved_at IS NOT NULL)),
  CHECK ((state = 'resolved') = (resolution IS NOT NULL)),
  CHECK ((state = 'ignored') = (ignored_until IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX reconciliation_findings_open ON makegood.reconciliation_findings (class, first_seen_at)
  WHERE state <> 'resolved';
CREATE INDEX reconciliation_findings_order ON makegood.reconciliation_findings (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX reconciliation_findings_expiry ON makegood.reconciliation_findings (ignored_until) WHERE state = 'ignored';
-- What became of a finding after it was opened: closed, reopened, acknowledged, ignored, put right.
CREATE TABLE makegood.reconciliation_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  finding_id uuid NOT NULL REFERENCES makegood.reconciliation_findings (id),
  from_state text NOT NULL,
  to_state text NOT NULL,
  class text NOT NULL,
  changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
  reason text CHECK (length(reason) <= 2000),
  run_id uuid,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX reconciliation_history_finding ON makegood.reconciliation_history (finding_id);
CREATE TRIGGER reconciliation_history_append_only
  BEFORE UPDATE OR DELETE OR TRUNCATE ON makegood.reconciliation_history
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_history();
ALTER TABLE makegood.reconciliation_history ENABLE ALWAYS TRIGGER reconciliation_history_append_only;
-- The rest of what a reconciliation asks of workflows: those that ended without success.
CREATE INDEX workflow_executions_undone ON makegood.workflow_executions (entity_id)
  WHERE current_state IN ('failed', 'compensated');

COMMENT ON TABLE makegood.reconciliation_runs IS 'One row per run of the reconciliation; its job_runs row has the same id.';
COMMENT ON COLUMN makegood.reconciliation_runs.id IS 'The run, as in job_runs.';
COMMENT ON COLUMN makegood.reconciliation_runs.kind IS 'incremental (what changed), full (everything) or window (one span of time).';
COMMENT ON COLUMN makegood.reconciliation_runs.state IS 'running, matched or failed.';
COMMENT ON COLUMN makegood.reconciliation_runs.terms IS 'Grace, tolerance, mode and the other terms that it judged by.';
COMMENT ON COLUMN makegood.reconciliation_runs.watermark IS 'The provider''s books were complete up to here.';
COMMENT ON COLUMN makegood.reconciliation_runs.stale IS 'Why its source is not to be trusted (D32); no remedy may follow. Null: it is.';
COMMENT ON COLUMN makegood.reconciliation_runs.since_xid IS 'Changes of this transaction and later ones were looked at.';
COMMENT ON COLUMN makegood.reconciliation_runs.until_xid IS 'Where the next incremental run begins.';
COMMENT ON COLUMN makegood.reconciliation_runs.looked_at IS 'Orders and charges that were judged.';
COMMENT ON COLUMN makegood.reconciliation_runs.opened IS 'Findings opened or reopened.';
COMMENT ON COLUMN makegood.reconciliation_runs.closed IS 'Findings closed.';
COMMENT ON COLUMN makegood.reconciliation_runs.missed IS 'For a full run: verdicts that the incremental runs should have had and did not.';
COMMENT ON COLUMN makegood.reconciliation_runs.error IS 'Why it failed.';
COMMENT ON COLUMN makegood.reconciliation_runs.started_at IS 'When.';
COMMENT ON COLUMN makegood.reconciliation_runs.finished_at IS 'When it ended.';
COMMENT ON TABLE makegood.reconciliation_totals IS 'What each run''s charges came to: provider = matched + pending + the classes, per currency.';
COMMENT ON COLUMN makegood.reconciliation_totals.run_id IS 'The run.';
COMMENT ON COLUMN makegood.reconciliation_totals.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.reconciliation_totals.bucket IS 'provider, matched, pending or a class.';
COMMENT ON COLUMN makegood.reconciliation_totals.charges IS 'How many charges.';
COMMENT ON COLUMN makegood.reconciliation_totals.amount_minor IS 'What they captured.';
COMMENT ON TABLE makegood.reconciliation_units IS
  'The last verdict on each order or charge that is not a plain pair; a charge that is in no plain pair is always here.';
COMMENT ON COLUMN makegood.reconciliation_units.unit IS 'order:<id>, charge:<id>, payout:<id>, balance:<id>, or name:<charge> for a charge that names an order it does not pay.';
COMMENT ON COLUMN makegood.reconciliation_units.order_id IS 'The order, or the one that the charge names.';
COMMENT ON COLUMN makegood.reconciliation_units.charge_id IS 'The charge, or the order''s first one.';
COMMENT ON COLUMN makegood.reconciliation_units.class IS 'The verdict.';
COMMENT ON COLUMN makegood.reconciliation_units.due_at IS 'When time alone may change the verdict; the next run after that looks again.';
COMMENT ON COLUMN makegood.reconciliation_units.run_id IS 'The run that judged it last.';
COMMENT ON TABLE makegood.reconciliation_findings IS 'Discrepancies between the provider''s books and ours, one row each.';
COMMENT ON COLUMN makegood.reconciliation_findings.id IS 'The finding.';
COMMENT ON COLUMN makegood.reconciliation_findings.unit IS 'What it is about, as in reconciliation_units.';
COMMENT ON COLUMN makegood.reconciliation_findings.class IS 'D01 to D32, see docs/reconciliation.md.';
COMMENT ON COLUMN makegood.reconciliation_findings.state IS 'open, acknowledged, remedying, resolved or ignored.';
COMMENT ON COLUMN makegood.reconciliation_findings.order_id IS 'The order, if any.';
COMMENT ON COLUMN makegood.reconciliation_findings.charge_id IS 'The charge, or the one a remedy would act on.';
COMMENT ON COLUMN makegood.reconciliation_findings.customer_ref IS 'Whose.';
COMMENT ON COLUMN makegood.reconciliation_findings.amount_at_risk_minor IS 'Money that is not where it should be.';
COMMENT ON COLUMN makegood.reconciliation_findings.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.reconciliation_findings.remedy IS 'What would put it right; human where no job may.';
COMMENT ON COLUMN makegood.reconciliation_findings.details IS 'Both sides as they were when it was last seen.';
COMMENT ON COLUMN makegood.reconciliation_findings.first_seen_run IS 'The run that opened it.';
COMMENT ON COLUMN makegood.reconciliation_findings.last_seen_run IS 'The last run that saw it.';
COMMENT ON COLUMN makegood.reconciliation_findings.first_seen_at IS 'When it was opened.';
COMMENT ON COLUMN makegood.reconciliation_findings.last_seen_at IS 'When it was last seen.';
COMMENT ON COLUMN makegood.reconciliation_findings.runs_seen IS 'How many runs have seen it.';
COMMENT ON COLUMN makegood.reconciliation_findings.reopened IS 'How often it broke again after it was closed.';
COMMENT ON COLUMN makegood.reconciliation_findings.resolved_at IS 'When it was closed.';
COMMENT ON COLUMN makegood.reconciliation_findings.resolution IS 'How: late_arrival (D28), remedied, recorded, or superseded by another class.';
COMMENT ON COLUMN makegood.reconciliation_findings.ignored_until IS 'Until when nobody wants to hear of it.';
COMMENT ON COLUMN makegood.reconciliation_findings.note IS 'What the last person wrote.';
COMMENT ON TABLE makegood.reconciliation_history IS 'Every change of a finding''s state after it was opened; append-only.';
COMMENT ON COLUMN makegood.reconciliation_history.id IS 'In the order of writing.';
COMMENT ON COLUMN makegood.reconciliation_history.finding_id IS 'The finding.';
COMMENT ON COLUMN makegood.reconciliation_history.from_state IS 'Before.';
COMMENT ON COLUMN makegood.reconciliation_history.to_state IS 'After.';
COMMENT ON COLUMN makegood.reconciliation_history.class IS 'The class at that time, or D28 where it closed by itself.';
COMMENT ON COLUMN makegood.reconciliation_history.changed_by IS 'A run, a remedy or a person.';
COMMENT ON COLUMN makegood.reconciliation_history.reason IS 'Why.';
COMMENT ON COLUMN makegood.reconciliation_history.run_id IS 'The run that changed it, if one did.';
COMMENT ON COLUMN makegood.reconciliation_history.changed_at IS 'When.';

-- The house's own orders follow their workflows, in the transaction that moves them. A team's own table does not need
-- this; its workflows only note that they ended badly, so that the next run looks at them.
CREATE FUNCTION makegood.follow_workflows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
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
  INSERT INTO makegood.reconciliation_units AS u (unit, order_id, class, due_at, run_id)
  SELECT DISTINCT 'order:' || n.entity_id, n.entity_id, 'PENDING', clock_timestamp(), '00000000-0000-0000-0000-000000000000'::uuid
    FROM new_rows n WHERE n.to_state IN ('compensated', 'failed') ORDER BY 1
  ON CONFLICT (unit) DO UPDATE SET due_at = excluded.due_at;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION makegood.follow_workflows() IS
  'Trigger on transitions: the order says paid, fulfilled or cancelled when its workflow does.';
CREATE TRIGGER transitions_are_followed_by_orders
  AFTER INSERT ON makegood.workflow_transitions
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.follow_workflows();
ALTER TABLE makegood.workflow_transitions ENABLE ALWAYS TRIGGER transitions_are_followed_by_orders;

-- What a remedy corrects in our books. A team with a table of its own replaces this function too; returning false means
-- that it cannot be corrected from here, and a person is asked.
CREATE FUNCTION makegood.correct_order(
  p_order_id text, p_status text, p_refunded_minor bigint, p_dispute_known boolean, p_written_off_minor bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE makegood.orders AS o
     SET status = coalesce(p_status, o.status), refunded_minor = coalesce(p_refunded_minor, o.refunded_minor),
         dispute_known = coalesce(p_dispute_known, o.dispute_known),
         written_off_minor = coalesce(p_written_off_minor, o.written_off_minor)
   WHERE o.id = p_order_id;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION makegood.correct_order(text, text, bigint, boolean, bigint) IS
  'Sets what is given and leaves the rest: how a remedy corrects our books. Redefine it beside reconcilable_orders.';
