-- Who may act through the dashboard, and what was asked for there.

-- A login as the identity provider, the proxy or the demo names it. What each role may do is said in the act functions.
CREATE TABLE makegood.people (
  login text PRIMARY KEY
    CHECK (length(login) BETWEEN 1 AND 200 AND login = lower(btrim(login)) AND login !~ '[[:cntrl:]]'),
  roles text[] NOT NULL CHECK (roles <@ '{viewer,engineer,operator,approver}' AND array_position(roles, NULL) IS NULL),
  disabled boolean NOT NULL DEFAULT false,
  granted_by text NOT NULL CHECK (length(granted_by) BETWEEN 1 AND 200),
  granted_at timestamptz NOT NULL,
  CHECK (disabled OR cardinality(roles) > 0)
);

-- One row per form that was sent: the token was made when the form was shown, so a form sent twice acts once.
CREATE TABLE makegood.acts (
  token uuid PRIMARY KEY,
  login text NOT NULL,
  action text NOT NULL,
  subject text NOT NULL,
  details jsonb NOT NULL CHECK (pg_column_size(details) <= 262144),
  result jsonb,
  approval_id uuid,
  acted_at timestamptz NOT NULL
);
CREATE INDEX acts_approval ON makegood.acts (approval_id) WHERE approval_id IS NOT NULL;

-- What was answered stays the answer.
CREATE FUNCTION makegood.refuse_rewriting_acts() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'what was done is kept: % of % refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'MG006';
END
$$;
COMMENT ON FUNCTION makegood.refuse_rewriting_acts() IS 'Trigger: people are disabled, not deleted, and an act keeps its answer.';
CREATE TRIGGER acts_are_answered_once BEFORE UPDATE ON makegood.acts
  FOR EACH ROW WHEN (OLD.result IS NOT NULL OR (OLD.token, OLD.login, OLD.action, OLD.subject, OLD.details)
                     IS DISTINCT FROM (NEW.token, NEW.login, NEW.action, NEW.subject, NEW.details))
  EXECUTE FUNCTION makegood.refuse_rewriting_acts();
CREATE TRIGGER acts_are_kept BEFORE DELETE OR TRUNCATE ON makegood.acts
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_acts();
-- A person is disabled, not deleted: their name stands in the audit.
CREATE TRIGGER people_are_kept BEFORE DELETE OR TRUNCATE ON makegood.people
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_acts();
ALTER TABLE makegood.acts ENABLE ALWAYS TRIGGER acts_are_answered_once;
ALTER TABLE makegood.acts ENABLE ALWAYS TRIGGER acts_are_kept;
ALTER TABLE makegood.people ENABLE ALWAYS TRIGGER people_are_kept;

COMMENT ON TABLE makegood.people IS 'Who may look and act through the dashboard; changed by grant_person and revoke_person only.';
COMMENT ON COLUMN makegood.people.login IS 'The name the login brings, in lower case, for example an e-mail address.';
COMMENT ON COLUMN makegood.people.roles IS 'viewer (looks), engineer (sees personal data), operator (acts), approver (is the second person).';
COMMENT ON COLUMN makegood.people.disabled IS 'May do nothing at all, whatever the roles say.';
COMMENT ON COLUMN makegood.people.granted_by IS 'Who changed this last; every change is in operator_actions.';
COMMENT ON COLUMN makegood.people.granted_at IS 'When that was.';

COMMENT ON TABLE makegood.acts IS 'What was asked for through the dashboard, once per form, with the answer; the audit proper is operator_actions.';
COMMENT ON COLUMN makegood.acts.token IS 'Made when the form was shown.';
COMMENT ON COLUMN makegood.acts.login IS 'Who sent the form.';
COMMENT ON COLUMN makegood.acts.action IS 'What was asked for.';
COMMENT ON COLUMN makegood.acts.subject IS 'About what.';
COMMENT ON COLUMN makegood.acts.details IS 'With which parameters, so that it can be carried out once it is approved.';
COMMENT ON COLUMN makegood.acts.result IS 'What was answered; the same form gets the same answer.';
COMMENT ON COLUMN makegood.acts.approval_id IS 'The approval it waits for, where it needs a second person.';
COMMENT ON COLUMN makegood.acts.acted_at IS 'When it was sent, by the database''s clock.';
