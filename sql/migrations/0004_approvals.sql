-- What one person asks for and another one allows, before something is done that needs two.
CREATE TABLE makegood.approvals (
  id uuid PRIMARY KEY,
  action text NOT NULL CHECK (length(action) BETWEEN 1 AND 100),
  subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 300),
  digest text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
  amount_minor bigint CHECK (amount_minor >= 0),
  currency text,
  requested_by text NOT NULL CHECK (length(requested_by) BETWEEN 1 AND 200),
  requested_at timestamptz NOT NULL,
  reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 2000),
  expires_at timestamptz NOT NULL,
  approved_by text CHECK (length(approved_by) BETWEEN 1 AND 200),
  approved_at timestamptz,
  approval_reason text CHECK (length(approval_reason) BETWEEN 1 AND 2000),
  refused_by text CHECK (length(refused_by) BETWEEN 1 AND 200),
  refused_at timestamptz,
  refusal_reason text CHECK (length(refusal_reason) BETWEEN 1 AND 2000),
  used_by text CHECK (length(used_by) BETWEEN 1 AND 200),
  used_at timestamptz,
  state text NOT NULL DEFAULT 'requested' CHECK (state IN ('requested', 'approved', 'refused', 'used', 'expired')),
  -- Two people. The same name in other letters, or with a blank, is the same person.
  CONSTRAINT approvals_by_a_second_person CHECK (lower(btrim(approved_by)) <> lower(btrim(requested_by))),
  CHECK (expires_at > requested_at),
  CHECK ((amount_minor IS NULL) = (currency IS NULL)),
  CHECK (state NOT IN ('approved', 'used') OR (approved_by IS NOT NULL AND approved_at IS NOT NULL AND approval_reason IS NOT NULL)),
  CHECK (state <> 'requested' OR approved_by IS NULL),
  CHECK ((state = 'refused') = (refused_by IS NOT NULL AND refused_at IS NOT NULL AND refusal_reason IS NOT NULL)),
  CHECK ((state = 'used') = (used_by IS NOT NULL AND used_at IS NOT NULL))
);
-- One open request for one thing, however many ask.
CREATE UNIQUE INDEX approvals_open ON makegood.approvals (action, subject, digest) WHERE state IN ('requested', 'approved');
CREATE INDEX approvals_waiting ON makegood.approvals (requested_at) WHERE state IN ('requested', 'approved');
CREATE INDEX approvals_subject ON makegood.approvals (subject);

-- What was shown to whoever approves is what they approved: it never changes, and a state has one way to go. An
-- approval begins as a request, is not given or used past its time, and is used once.
CREATE FUNCTION makegood.check_approval() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'requested' THEN
      RAISE EXCEPTION 'an approval begins as a request, not as %', NEW.state USING ERRCODE = 'MG012';
    END IF;
    RETURN NEW;
  END IF;
  IF (OLD.id, OLD.action, OLD.subject, OLD.digest, OLD.amount_minor, OLD.currency, OLD.requested_by, OLD.requested_at,
      OLD.reason, OLD.expires_at)
     IS DISTINCT FROM
     (NEW.id, NEW.action, NEW.subject, NEW.digest, NEW.amount_minor, NEW.currency, NEW.requested_by, NEW.requested_at,
      NEW.reason, NEW.expires_at) THEN
    RAISE EXCEPTION 'what approval % is about cannot be changed; ask anew', OLD.id USING ERRCODE = 'MG012';
  END IF;
  IF OLD.state <> 'requested' AND (OLD.approved_by, OLD.approved_at, OLD.approval_reason)
     IS DISTINCT FROM (NEW.approved_by, NEW.approved_at, NEW.approval_reason) THEN
    RAISE EXCEPTION 'who approved % and why cannot be changed', OLD.id USING ERRCODE = 'MG012';
  END IF;
  IF (OLD.state, NEW.state) NOT IN (('requested', 'approved'), ('requested', 'refused'), ('requested', 'expired'),
                                    ('approved', 'used'), ('approved', 'refused'), ('approved', 'expired')) THEN
    RAISE EXCEPTION 'approval % is % and cannot become %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'MG012';
  END IF;
  IF NEW.state IN ('approved', 'used') AND OLD.expires_at <= clock_timestamp() THEN
    RAISE EXCEPTION 'approval % has expired', OLD.id USING ERRCODE = 'MG012';
  END IF;
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION makegood.check_approval() IS
  'Trigger on approvals: what was asked for never changes, and a state has one way to go.';
CREATE TRIGGER approvals_keep_what_was_shown BEFORE INSERT OR UPDATE ON makegood.approvals
  FOR EACH ROW EXECUTE FUNCTION makegood.check_approval();
CREATE TRIGGER approvals_are_kept BEFORE DELETE OR TRUNCATE ON makegood.approvals
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_history();
CREATE TRIGGER approvals_currency_exists AFTER INSERT ON makegood.approvals
  FOR EACH ROW WHEN (NEW.currency IS NOT NULL) EXECUTE FUNCTION makegood.check_currency_exists();
ALTER TABLE makegood.approvals ENABLE ALWAYS TRIGGER approvals_keep_what_was_shown;
ALTER TABLE makegood.approvals ENABLE ALWAYS TRIGGER approvals_are_kept;
ALTER TABLE makegood.approvals ENABLE ALWAYS TRIGGER approvals_currency_exists;

COMMENT ON TABLE makegood.approvals IS 'Requests for something that needs a second person, and what became of each; never rewritten.';
COMMENT ON COLUMN makegood.approvals.id IS 'The request.';
COMMENT ON COLUMN makegood.approvals.action IS 'What would be done, in a word or two.';
COMMENT ON COLUMN makegood.approvals.subject IS 'To what.';
COMMENT ON COLUMN makegood.approvals.digest IS 'SHA-256 in hex of everything that was shown; anything else was not approved.';
COMMENT ON COLUMN makegood.approvals.amount_minor IS 'How much money it moves, in minor units, if it does.';
COMMENT ON COLUMN makegood.approvals.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.approvals.requested_by IS 'Who asked.';
COMMENT ON COLUMN makegood.approvals.requested_at IS 'When.';
COMMENT ON COLUMN makegood.approvals.reason IS 'Why.';
COMMENT ON COLUMN makegood.approvals.expires_at IS 'Neither given nor used from then on.';
COMMENT ON COLUMN makegood.approvals.approved_by IS 'Who allowed it: somebody else.';
COMMENT ON COLUMN makegood.approvals.approved_at IS 'When.';
COMMENT ON COLUMN makegood.approvals.approval_reason IS 'Why.';
COMMENT ON COLUMN makegood.approvals.refused_by IS 'Who refused it, or took it back.';
COMMENT ON COLUMN makegood.approvals.refused_at IS 'When.';
COMMENT ON COLUMN makegood.approvals.refusal_reason IS 'Why.';
COMMENT ON COLUMN makegood.approvals.used_by IS 'Who or what did it.';
COMMENT ON COLUMN makegood.approvals.used_at IS 'When: once.';
COMMENT ON COLUMN makegood.approvals.state IS 'requested, approved, refused, used or expired.';
