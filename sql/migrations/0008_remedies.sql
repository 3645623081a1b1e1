-- What is done about findings, how much of it may be done without a person, and what was done.

-- Whether a class is acted upon, per environment. No row means that it is only told what would be done.
CREATE TABLE makegood.remedy_policy (
  environment text NOT NULL CHECK (environment IN ('live', 'test')),
  class text NOT NULL CHECK (class ~ '^D[0-9]{2}$'),
  dry_run boolean NOT NULL DEFAULT true,
  changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
  changed_at timestamptz NOT NULL,
  PRIMARY KEY (environment, class)
);
-- How much money may go back without a second person. No row means none.
CREATE TABLE makegood.remedy_caps (
  environment text NOT NULL CHECK (environment IN ('live', 'test')),
  currency text NOT NULL,
  item_minor bigint NOT NULL CHECK (item_minor >= 0),
  run_count integer NOT NULL CHECK (run_count >= 0),
  run_minor bigint NOT NULL CHECK (run_minor >= 0),
  day_count integer NOT NULL CHECK (day_count >= 0),
  day_minor bigint NOT NULL CHECK (day_minor >= 0),
  customer_count integer NOT NULL CHECK (customer_count >= 0),
  customer_minor bigint NOT NULL CHECK (customer_minor >= 0),
  changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
  changed_at timestamptz NOT NULL,
  PRIMARY KEY (environment, currency)
);
CREATE TRIGGER remedy_caps_currency_exists AFTER INSERT ON makegood.remedy_caps
  FOR EACH ROW EXECUTE FUNCTION makegood.check_currency_exists();
ALTER TABLE makegood.remedy_caps ENABLE ALWAYS TRIGGER remedy_caps_currency_exists;
-- The kill switch: one row, looked at for every single remedy.
CREATE TABLE makegood.remedy_switch (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  stopped boolean NOT NULL,
  reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 2000),
  changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
  changed_at timestamptz NOT NULL
);

-- A hundred of the currency for one item, and of such items what a person can look through in a morning.
INSERT INTO makegood.remedy_caps
SELECT e.environment, c.currency, 10000, 50, 100000, 100, 200000, 3, 20000, 'migration', clock_timestamp()
  FROM (VALUES ('live'), ('test')) AS e(environment), (VALUES ('EUR'), ('GBP'), ('USD')) AS c(currency);
INSERT INTO makegood.remedy_switch (stopped, reason, changed_by, changed_at)
VALUES (false, 'never stopped', 'migration', clock_timestamp());

-- One row per remedy. Its operation key (entity_id) is one per charge, class and sequence; a next sequence is there only
-- when the one before surely moved nothing.
CREATE TABLE makegood.reconciliation_remedies (
  id uuid PRIMARY KEY,
  finding_id uuid NOT NULL,
  run_id uuid,
  environment text NOT NULL CHECK (environment IN ('live', 'test')),
  class text NOT NULL CHECK (class ~ '^D[0-9]{2}$'),
  remedy text NOT NULL CHECK (remedy IN ('resume', 'refund', 'retry_refund', 'correct', 'record', 'stop')),
  order_id text,
  charge_id text,
  customer_ref text,
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  currency text,
  sequence integer NOT NULL CHECK (sequence >= 1),
  entity_id text NOT NULL UNIQUE CHECK (length(entity_id) BETWEEN 1 AND 150),
  digest text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
  state text NOT NULL DEFAULT 'proposed'
    CHECK (state IN ('proposed', 'awaiting_approval', 'approved', 'started', 'succeeded', 'refused', 'failed')),
  approval_id uuid,
  workflow_id uuid,
  refund_ref text CHECK (length(refund_ref) <= 255),
  books_due boolean NOT NULL DEFAULT false,
  reason text CHECK (length(reason) <= 2000),
  proposed_by text NOT NULL CHECK (length(proposed_by) BETWEEN 1 AND 200),
  proposed_at timestamptz NOT NULL,
  started_at timestamptz,
  finished_at timestamptz,
  CHECK ((state IN ('succeeded', 'refused', 'failed')) = (finished_at IS NOT NULL)),
  CHECK (state NOT IN ('started', 'succeeded', 'failed') OR started_at IS NOT NULL),
  CHECK (remedy NOT IN ('refund', 'retry_refund') OR (charge_id IS NOT NULL AND currency IS NOT NULL AND amount_minor > 0))
);
-- One at a time for a finding, and one refund at a time for a charge, whatever found it.
CREATE UNIQUE INDEX reconciliation_remedies_of_finding ON makegood.reconciliation_remedies (finding_id)
  WHERE state IN ('proposed', 'awaiting_approval', 'approved', 'started');
CREATE UNIQUE INDEX reconciliation_remedies_of_charge ON makegood.reconciliation_remedies (charge_id)
  WHERE state IN ('proposed', 'awaiting_approval', 'approved', 'started') AND remedy IN ('refund', 'retry_refund');
CREATE UNIQUE INDEX reconciliation_remedies_sequence ON makegood.reconciliation_remedies (charge_id, class, sequence)
  WHERE remedy IN ('refund', 'retry_refund');
-- What the caps add up.
CREATE INDEX reconciliation_remedies_spent ON makegood.reconciliation_remedies (environment, currency, started_at)
  WHERE state IN ('started', 'succeeded') AND remedy IN ('refund', 'retry_refund');
CREATE INDEX reconciliation_remedies_history ON makegood.reconciliation_remedies (finding_id, proposed_at);
CREATE INDEX reconciliation_remedies_books ON makegood.reconciliation_remedies (finished_at) WHERE books_due;

-- What was proposed is what is done: it never changes, and a state has one way to go.
CREATE FUNCTION makegood.check_remedy() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'proposed' THEN
      RAISE EXCEPTION 'a remedy begins as a proposal, not as %', NEW.state USING ERRCODE = 'MG013';
    END IF;
    RETURN NEW;
  END IF;
  IF (OLD.id, OLD.finding_id, OLD.environment, OLD.class, OLD.remedy, OLD.charge_id, OLD.amount_minor, OLD.currency,
      OLD.sequence, OLD.entity_id, OLD.digest, OLD.proposed_by, OLD.proposed_at)
     IS DISTINCT FROM
     (NEW.id, NEW.finding_id, NEW.environment, NEW.class, NEW.remedy, NEW.charge_id, NEW.amount_minor, NEW.currency,
      NEW.sequence, NEW.entity_id, NEW.digest, NEW.proposed_by, NEW.proposed_at) THEN
    RAISE EXCEPTION 'what remedy % is about cannot be changed', OLD.entity_id USING ERRCODE = 'MG013';
  END IF;
  IF OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
       ('proposed', 'awaiting_approval'), ('proposed', 'started'), ('proposed', 'refused'),
       ('awaiting_approval', 'approved'), ('awaiting_approval', 'refused'),
       ('approved', 'started'), ('approved', 'refused'),
       ('started', 'succeeded'), ('started', 'refused'), ('started', 'failed')) THEN
    RAISE EXCEPTION 'remedy % is % and cannot become %', OLD.entity_id, OLD.state, NEW.state USING ERRCODE = 'MG013';
  END IF;
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION makegood.check_remedy() IS
  'Trigger on remedies: what was proposed never changes, and a state has one way to go.';
CREATE TRIGGER remedies_keep_what_was_proposed BEFORE INSERT OR UPDATE ON makegood.reconciliation_remedies
  FOR EACH ROW EXECUTE FUNCTION makegood.check_remedy();
CREATE TRIGGER remedies_are_kept BEFORE DELETE OR TRUNCATE ON makegood.reconciliation_remedies
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_history();
ALTER TABLE makegood.reconciliation_remedies ENABLE ALWAYS TRIGGER remedies_keep_what_was_proposed;
ALTER TABLE makegood.reconciliation_remedies ENABLE ALWAYS TRIGGER remedies_are_kept;

-- When the workflow of a remedy ends, the remedy and its finding end with it, in the same transaction; at its end, so
-- that the transition with the reason is there. For any other type this costs the look at one column.
CREATE FUNCTION makegood.follow_remedy() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM makegood.settle_remedy(NEW.entity_id);
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION makegood.follow_remedy() IS 'Trigger on workflows: a remedy ends with its workflow.';
CREATE CONSTRAINT TRIGGER remedies_follow_their_workflow
  AFTER UPDATE ON makegood.workflow_executions DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.workflow_type = 'remedy' AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
  EXECUTE FUNCTION makegood.follow_remedy();
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER remedies_follow_their_workflow;

COMMENT ON TABLE makegood.remedy_policy IS 'Which classes are acted upon, per environment; every change is in operator_actions.';
COMMENT ON COLUMN makegood.remedy_policy.environment IS 'live or test, as the provider''s key is.';
COMMENT ON COLUMN makegood.remedy_policy.class IS 'D01 to D32.';
COMMENT ON COLUMN makegood.remedy_policy.dry_run IS 'Only say what would be done.';
COMMENT ON COLUMN makegood.remedy_policy.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN makegood.remedy_policy.changed_at IS 'When.';
COMMENT ON TABLE makegood.remedy_caps IS 'How much may be refunded without a second person, per currency; no row means nothing.';
COMMENT ON COLUMN makegood.remedy_caps.environment IS 'live or test, as the provider''s key is.';
COMMENT ON COLUMN makegood.remedy_caps.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.remedy_caps.item_minor IS 'The largest single refund, in minor units; above it a second person is asked.';
COMMENT ON COLUMN makegood.remedy_caps.run_count IS 'Refunds in one run.';
COMMENT ON COLUMN makegood.remedy_caps.run_minor IS 'Their sum.';
COMMENT ON COLUMN makegood.remedy_caps.day_count IS 'Refunds within 24 hours.';
COMMENT ON COLUMN makegood.remedy_caps.day_minor IS 'Their sum.';
COMMENT ON COLUMN makegood.remedy_caps.customer_count IS 'Refunds to one customer within 30 days.';
COMMENT ON COLUMN makegood.remedy_caps.customer_minor IS 'Their sum.';
COMMENT ON COLUMN makegood.remedy_caps.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN makegood.remedy_caps.changed_at IS 'When.';
COMMENT ON TABLE makegood.remedy_switch IS 'The kill switch of all remedies: one row.';
COMMENT ON COLUMN makegood.remedy_switch.only_one IS 'True: there is one row.';
COMMENT ON COLUMN makegood.remedy_switch.stopped IS 'No remedy starts or goes on to its refund.';
COMMENT ON COLUMN makegood.remedy_switch.reason IS 'Why it stands as it does.';
COMMENT ON COLUMN makegood.remedy_switch.changed_by IS 'Who threw it last.';
COMMENT ON COLUMN makegood.remedy_switch.changed_at IS 'When.';
COMMENT ON TABLE makegood.reconciliation_remedies IS 'What was proposed, allowed and done about findings; never rewritten.';
COMMENT ON COLUMN makegood.reconciliation_remedies.id IS 'The remedy; at the provider its refund carries it as compensation_id.';
COMMENT ON COLUMN makegood.reconciliation_remedies.finding_id IS 'The finding it is for.';
COMMENT ON COLUMN makegood.reconciliation_remedies.run_id IS 'The run that it counts for.';
COMMENT ON COLUMN makegood.reconciliation_remedies.environment IS 'live or test.';
COMMENT ON COLUMN makegood.reconciliation_remedies.class IS 'The finding''s class when it was proposed.';
COMMENT ON COLUMN makegood.reconciliation_remedies.remedy IS 'What is done.';
COMMENT ON COLUMN makegood.reconciliation_remedies.order_id IS 'The order, if any.';
COMMENT ON COLUMN makegood.reconciliation_remedies.charge_id IS 'The charge it acts on, if any.';
COMMENT ON COLUMN makegood.reconciliation_remedies.customer_ref IS 'Whose.';
COMMENT ON COLUMN makegood.reconciliation_remedies.amount_minor IS 'How much it refunds, in minor units; 0 where no money moves.';
COMMENT ON COLUMN makegood.reconciliation_remedies.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.reconciliation_remedies.sequence IS 'Which attempt for this charge and class; the ones before moved nothing.';
COMMENT ON COLUMN makegood.reconciliation_remedies.entity_id IS 'The operation key, and its workflow''s entity.';
COMMENT ON COLUMN makegood.reconciliation_remedies.digest IS 'SHA-256 of class, charge, amount and currency: what an approval is bound to.';
COMMENT ON COLUMN makegood.reconciliation_remedies.state IS 'proposed, awaiting_approval, approved, started, succeeded, refused (nothing was done) or failed.';
COMMENT ON COLUMN makegood.reconciliation_remedies.approval_id IS 'The request for a second person, where one was needed.';
COMMENT ON COLUMN makegood.reconciliation_remedies.workflow_id IS 'The workflow that carries it out.';
COMMENT ON COLUMN makegood.reconciliation_remedies.refund_ref IS 'The provider''s id of the refund.';
COMMENT ON COLUMN makegood.reconciliation_remedies.books_due IS 'The money is back and our books could not be told yet.';
COMMENT ON COLUMN makegood.reconciliation_remedies.reason IS 'Why it ended as it did.';
COMMENT ON COLUMN makegood.reconciliation_remedies.proposed_by IS 'Who or what proposed it.';
COMMENT ON COLUMN makegood.reconciliation_remedies.proposed_at IS 'When.';
COMMENT ON COLUMN makegood.reconciliation_remedies.started_at IS 'When it was begun.';
COMMENT ON COLUMN makegood.reconciliation_remedies.finished_at IS 'When it ended.';
