-- Rules that no single-row CHECK can say. They hold for everybody, the owner included (ENABLE ALWAYS).

-- Each new transition continues its workflow's chain along an edge of its type's graph, and a terminal
-- state comes last: `compensated` when every undo is done, `failed` when there is nothing to undo.
-- One check per statement, not per row: a batch of 500 costs one query. The joins are forced through
-- indexes because the planner knows nothing of how many new rows there are.
CREATE FUNCTION makegood.check_new_transitions() RETURNS trigger
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
DECLARE
  bad record;
BEGIN
  SELECT n.entity_id, n.seq, n.from_state, n.to_state, e.workflow_type,
         (n.seq = 1 OR p.to_state = n.from_state) IS TRUE AS chained,
         CASE WHEN n.seq = 1 THEN s.kind = 'initial' ELSE g.to_state IS NOT NULL END AS legal,
         e.entity_id = n.entity_id AS same_entity
    INTO bad
    FROM new_rows n
    LEFT JOIN makegood.workflow_executions e ON e.id = n.workflow_id
    LEFT JOIN makegood.workflow_states s ON s.workflow_type = e.workflow_type AND s.state = n.to_state
    LEFT JOIN makegood.workflow_transitions p ON p.workflow_id = n.workflow_id AND p.seq = n.seq - 1
    LEFT JOIN makegood.workflow_edges g
           ON g.workflow_type = e.workflow_type AND g.from_state = n.from_state AND g.to_state = n.to_state
   WHERE NOT ((n.seq = 1 OR p.to_state = n.from_state) IS TRUE)
      OR NOT (CASE WHEN n.seq = 1 THEN s.kind = 'initial' ELSE g.to_state IS NOT NULL END IS TRUE)
      OR e.entity_id <> n.entity_id
      OR n.seq > e.last_seq
   LIMIT 1;
  IF FOUND THEN
    IF bad.workflow_type IS NULL THEN
      RAISE EXCEPTION 'a transition of % belongs to no workflow', bad.entity_id USING ERRCODE = 'MG001';
    END IF;
    IF NOT bad.legal OR bad.legal IS NULL THEN
      RAISE EXCEPTION 'illegal transition of % %: % → % is not in the graph of this type',
        bad.workflow_type, bad.entity_id, coalesce(bad.from_state, '(start)'), bad.to_state
        USING ERRCODE = 'MG001';
    END IF;
    IF bad.chained AND bad.same_entity THEN
      RAISE EXCEPTION 'transition % of % % was written without its change of state',
        bad.seq, bad.workflow_type, bad.entity_id USING ERRCODE = 'MG003';
    END IF;
    RAISE EXCEPTION 'transition % of % % does not continue its chain (from %, entity matches: %)',
      bad.seq, bad.workflow_type, bad.entity_id, bad.from_state, bad.same_entity
      USING ERRCODE = 'MG001';
  END IF;

  IF EXISTS (SELECT FROM new_rows n WHERE n.to_state IN ('compensated', 'failed')) THEN
    SELECT n.entity_id, n.to_state, c.step INTO bad
      FROM new_rows n JOIN makegood.compensations c ON c.workflow_id = n.workflow_id
     WHERE (n.to_state = 'compensated' AND c.state <> 'succeeded') OR n.to_state = 'failed'
     LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION '% cannot become %: the undo of step % is not done', bad.entity_id, bad.to_state, bad.step
        USING ERRCODE = 'MG002';
    END IF;
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER transitions_continue_the_chain
  AFTER INSERT ON makegood.workflow_transitions
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.check_new_transitions();
ALTER TABLE makegood.workflow_transitions ENABLE ALWAYS TRIGGER transitions_continue_the_chain;

-- At commit, a workflow's state is that of its last transition. Together with the check above this makes
-- it impossible to change a state without writing it down, or to write down what did not happen.
CREATE FUNCTION makegood.check_execution_follows_chain() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  v_seq integer;
  v_state text;
BEGIN
  SELECT t.seq, t.to_state INTO v_seq, v_state FROM makegood.workflow_transitions t
   WHERE t.workflow_id = NEW.id ORDER BY t.seq DESC LIMIT 1;
  IF v_seq = NEW.last_seq AND v_state = NEW.current_state THEN
    RETURN NULL;
  END IF;
  -- NEW may be an earlier version of a row that moved twice in this transaction: the row itself decides.
  PERFORM FROM makegood.workflow_executions e
    WHERE e.id = NEW.id AND (e.last_seq, e.current_state) IS DISTINCT FROM (v_seq, v_state);
  IF FOUND THEN
    RAISE EXCEPTION 'state of % % changed without its transition', NEW.workflow_type, NEW.entity_id
      USING ERRCODE = 'MG003';
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER execution_follows_chain_when_new
  AFTER INSERT ON makegood.workflow_executions DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION makegood.check_execution_follows_chain();
CREATE CONSTRAINT TRIGGER execution_follows_chain_when_moved
  AFTER UPDATE ON makegood.workflow_executions DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (OLD.current_state IS DISTINCT FROM NEW.current_state OR OLD.last_seq <> NEW.last_seq)
  EXECUTE FUNCTION makegood.check_execution_follows_chain();
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER execution_follows_chain_when_new;
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER execution_follows_chain_when_moved;

-- Who a workflow is about and how much money it moves never change, and a fence only rises.
CREATE FUNCTION makegood.refuse_rewriting_identity() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the identity of % % cannot be changed', OLD.workflow_type, OLD.entity_id
    USING ERRCODE = 'MG004';
END
$$;
CREATE TRIGGER executions_keep_identity
  BEFORE UPDATE OF id, workflow_type, entity_id, created_at, amount_minor, currency, start_hash
  ON makegood.workflow_executions FOR EACH ROW EXECUTE FUNCTION makegood.refuse_rewriting_identity();
CREATE TRIGGER executions_fence_only_rises
  BEFORE UPDATE OF fence ON makegood.workflow_executions
  FOR EACH ROW WHEN (NEW.fence < OLD.fence) EXECUTE FUNCTION makegood.refuse_rewriting_identity();
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_keep_identity;
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_fence_only_rises;

-- A currency exists. A foreign key would do, but it locks the one EUR row in every order's transaction.
CREATE FUNCTION makegood.check_currency_exists() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM makegood.currencies c WHERE c.code = NEW.currency) THEN
    RAISE EXCEPTION 'currency % does not exist (ISO 4217, upper case, for example EUR)', NEW.currency
      USING ERRCODE = 'MG005';
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER executions_currency_exists AFTER INSERT ON makegood.workflow_executions
  FOR EACH ROW WHEN (NEW.currency IS NOT NULL) EXECUTE FUNCTION makegood.check_currency_exists();
CREATE TRIGGER compensations_currency_exists AFTER INSERT ON makegood.compensations
  FOR EACH ROW WHEN (NEW.currency IS NOT NULL) EXECUTE FUNCTION makegood.check_currency_exists();
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_currency_exists;
ALTER TABLE makegood.compensations ENABLE ALWAYS TRIGGER compensations_currency_exists;

-- Append-only: what happened is never rewritten. Grants say so too; this stops the owner's slip.
CREATE FUNCTION makegood.refuse_rewriting_history() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'MG006';
END
$$;
CREATE TRIGGER transitions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON makegood.workflow_transitions
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_history();
CREATE TRIGGER operator_actions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON makegood.operator_actions
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_history();
ALTER TABLE makegood.workflow_transitions ENABLE ALWAYS TRIGGER transitions_append_only;
ALTER TABLE makegood.operator_actions ENABLE ALWAYS TRIGGER operator_actions_append_only;

-- Nothing is owed after the end. The check of new transitions sees only what is owed by then; this is its other
-- half, and the lock makes an undo and a terminal state that are written at once take turns.
CREATE FUNCTION makegood.check_new_compensation() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM makegood.workflow_executions e
    WHERE e.id = NEW.workflow_id AND e.finished_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the undo of step % cannot be owed: workflow % is finished', NEW.step, NEW.workflow_id
      USING ERRCODE = 'MG002';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER compensations_come_before_the_end BEFORE INSERT ON makegood.compensations
  FOR EACH ROW EXECUTE FUNCTION makegood.check_new_compensation();
ALTER TABLE makegood.compensations ENABLE ALWAYS TRIGGER compensations_come_before_the_end;

-- A workflow is never deleted: its history would be without it.
CREATE FUNCTION makegood.refuse_deleting_workflows() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'workflows are kept: % refused', TG_OP USING ERRCODE = 'MG006';
END
$$;
CREATE TRIGGER executions_are_kept BEFORE DELETE OR TRUNCATE ON makegood.workflow_executions
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_deleting_workflows();
ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_are_kept;

-- An undo that is done stays done, and one being run is not forgotten.
CREATE FUNCTION makegood.check_compensation_moves() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.state, NEW.state) NOT IN (
    ('pending', 'running'), ('running', 'pending'), ('running', 'succeeded'), ('running', 'held'),
    ('pending', 'held'), ('held', 'pending'), ('held', 'succeeded'), ('pending', 'succeeded')) THEN
    RAISE EXCEPTION 'illegal move of the undo of step %: % → %', OLD.step, OLD.state, NEW.state
      USING ERRCODE = 'MG001';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER compensations_move_legally BEFORE UPDATE ON makegood.compensations
  FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION makegood.check_compensation_moves();
ALTER TABLE makegood.compensations ENABLE ALWAYS TRIGGER compensations_move_legally;

-- A key's recovery point only moves forward, and what it stands for never changes once it was sent.
CREATE FUNCTION makegood.check_key_moves() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF array_position('{intent,sent,known,recorded}'::text[], NEW.status)
     < array_position('{intent,sent,known,recorded}'::text[], OLD.status) THEN
    RAISE EXCEPTION 'key % cannot go back from % to %', OLD.key, OLD.status, NEW.status USING ERRCODE = 'MG001';
  END IF;
  IF OLD.status <> 'intent' AND (NEW.request_hash, NEW.operation) IS DISTINCT FROM (OLD.request_hash, OLD.operation) THEN
    RAISE EXCEPTION 'key % was already used with other parameters', OLD.key USING ERRCODE = 'MG007';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER keys_move_forward BEFORE UPDATE ON makegood.idempotency_keys
  FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.request_hash IS DISTINCT FROM NEW.request_hash
                     OR OLD.operation IS DISTINCT FROM NEW.operation)
  EXECUTE FUNCTION makegood.check_key_moves();
ALTER TABLE makegood.idempotency_keys ENABLE ALWAYS TRIGGER keys_move_forward;

-- What is owed is never rewritten and never dropped.
CREATE FUNCTION makegood.refuse_rewriting_what_is_owed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'what a compensation owes cannot be changed: % refused', TG_OP USING ERRCODE = 'MG004';
END
$$;
CREATE TRIGGER compensations_keep_identity
  BEFORE UPDATE OF id, workflow_id, step, "position", idempotency_key, amount_minor, currency, created_at
  ON makegood.compensations FOR EACH ROW EXECUTE FUNCTION makegood.refuse_rewriting_what_is_owed();
CREATE TRIGGER compensations_are_kept BEFORE DELETE OR TRUNCATE ON makegood.compensations
  FOR EACH STATEMENT EXECUTE FUNCTION makegood.refuse_rewriting_what_is_owed();
ALTER TABLE makegood.compensations ENABLE ALWAYS TRIGGER compensations_keep_identity;
ALTER TABLE makegood.compensations ENABLE ALWAYS TRIGGER compensations_are_kept;
