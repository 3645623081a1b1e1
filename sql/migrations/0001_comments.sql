-- Every table and column says what it is for; a test reads these.

COMMENT ON TABLE makegood.currencies IS 'Currencies of ISO 4217 and how many decimals their minor unit has.';
COMMENT ON COLUMN makegood.currencies.code IS 'Three capital letters.';
COMMENT ON COLUMN makegood.currencies.exponent IS 'Decimals of the minor unit: JPY 0, EUR 2, KWD 3.';

COMMENT ON TABLE makegood.workflow_types IS 'Workflow types that a writer has registered.';
COMMENT ON COLUMN makegood.workflow_types.name IS 'The type, as in workflow_executions.workflow_type.';
COMMENT ON COLUMN makegood.workflow_types.definition IS 'States, steps, timeouts and edges as registered.';
COMMENT ON COLUMN makegood.workflow_types.registered_at IS 'When this definition was last changed.';

COMMENT ON TABLE makegood.workflow_states IS 'The states of each type and what they mean.';
COMMENT ON COLUMN makegood.workflow_states.workflow_type IS 'The type.';
COMMENT ON COLUMN makegood.workflow_states.state IS 'The state.';
COMMENT ON COLUMN makegood.workflow_states.kind IS 'initial, doing (a call may be under way), done (between two steps), compensating, terminal.';
COMMENT ON COLUMN makegood.workflow_states.step IS 'The step that a doing or done state belongs to.';
COMMENT ON COLUMN makegood.workflow_states.stuck_after IS 'Without progress for this long in this state a workflow is stuck.';

COMMENT ON TABLE makegood.workflow_edges IS 'The legal changes of state of each type; everything else is refused.';
COMMENT ON COLUMN makegood.workflow_edges.workflow_type IS 'The type.';
COMMENT ON COLUMN makegood.workflow_edges.from_state IS 'From.';
COMMENT ON COLUMN makegood.workflow_edges.to_state IS 'To.';

COMMENT ON TABLE makegood.workflow_executions IS 'One row per workflow: one execution of a type for one entity.';
COMMENT ON COLUMN makegood.workflow_executions.id IS 'The workflow, time-ordered.';
COMMENT ON COLUMN makegood.workflow_executions.workflow_type IS 'Which definition it follows.';
COMMENT ON COLUMN makegood.workflow_executions.entity_id IS 'What it is about, for example order-123; once per type.';
COMMENT ON COLUMN makegood.workflow_executions.current_state IS 'Where it is; that of its last transition.';
COMMENT ON COLUMN makegood.workflow_executions.context IS 'Parameters and the results of finished steps, at most 64 KiB.';
COMMENT ON COLUMN makegood.workflow_executions.created_at IS 'When it was started.';
COMMENT ON COLUMN makegood.workflow_executions.updated_at IS 'Last progress. Leases, attempts and waits leave it alone.';
COMMENT ON COLUMN makegood.workflow_executions.amount_minor IS 'Money it moves, in minor units of the currency.';
COMMENT ON COLUMN makegood.workflow_executions.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.workflow_executions.attempts IS 'Attempts of the current step.';
COMMENT ON COLUMN makegood.workflow_executions.next_attempt_at IS 'Not tried before this.';
COMMENT ON COLUMN makegood.workflow_executions.deadline_at IS 'Stuck when this has passed without progress.';
COMMENT ON COLUMN makegood.workflow_executions.fence IS 'Rises with each claim; a write under an older one is refused.';
COMMENT ON COLUMN makegood.workflow_executions.lease_owner IS 'The worker that has it.';
COMMENT ON COLUMN makegood.workflow_executions.lease_until IS 'Until when, unless renewed.';
COMMENT ON COLUMN makegood.workflow_executions.cancel_requested IS 'To be undone at the next step border.';
COMMENT ON COLUMN makegood.workflow_executions.cancel_requested_by IS 'Who asked.';
COMMENT ON COLUMN makegood.workflow_executions.cancel_reason IS 'Why.';
COMMENT ON COLUMN makegood.workflow_executions.held_at IS 'Parked for a person since.';
COMMENT ON COLUMN makegood.workflow_executions.held_reason IS 'Why.';
COMMENT ON COLUMN makegood.workflow_executions.finished_at IS 'When it reached a terminal state.';
COMMENT ON COLUMN makegood.workflow_executions.traceparent IS 'W3C trace context of the request that started it.';
COMMENT ON COLUMN makegood.workflow_executions.last_seq IS 'Number of its last transition.';
COMMENT ON COLUMN makegood.workflow_executions.start_hash IS 'Hash of what the start asked for, to notice a second start with other parameters.';

COMMENT ON TABLE makegood.workflow_transitions IS 'Every change of state, append-only, numbered without gaps per workflow.';
COMMENT ON COLUMN makegood.workflow_transitions.id IS 'Order of writing.';
COMMENT ON COLUMN makegood.workflow_transitions.workflow_id IS 'The workflow.';
COMMENT ON COLUMN makegood.workflow_transitions.entity_id IS 'Its entity, so that an order number is enough to ask.';
COMMENT ON COLUMN makegood.workflow_transitions.seq IS '1, 2, 3 … per workflow.';
COMMENT ON COLUMN makegood.workflow_transitions.from_state IS 'Empty for the first.';
COMMENT ON COLUMN makegood.workflow_transitions.to_state IS 'The new state.';
COMMENT ON COLUMN makegood.workflow_transitions.triggered_by IS 'The worker, service or person.';
COMMENT ON COLUMN makegood.workflow_transitions.metadata IS 'Why, at most 16 KiB.';
COMMENT ON COLUMN makegood.workflow_transitions.transitioned_at IS 'When, by the clock of the database.';

COMMENT ON TABLE makegood.step_attempts IS 'Every call made for a step or its undo, also the ones that were never answered.';
COMMENT ON COLUMN makegood.step_attempts.workflow_id IS 'The workflow.';
COMMENT ON COLUMN makegood.step_attempts.step IS 'The step.';
COMMENT ON COLUMN makegood.step_attempts.kind IS 'forward or compensation.';
COMMENT ON COLUMN makegood.step_attempts.attempt IS '1, 2, 3 … per step and kind.';
COMMENT ON COLUMN makegood.step_attempts.outcome IS 'success, failed (definitely), unknown (it may have worked); empty while under way or when the worker died.';
COMMENT ON COLUMN makegood.step_attempts.error_type IS 'What kind of error.';
COMMENT ON COLUMN makegood.step_attempts.error IS 'What was said, at most 2,000 characters.';
COMMENT ON COLUMN makegood.step_attempts.started_at IS 'When the call began.';
COMMENT ON COLUMN makegood.step_attempts.finished_at IS 'When its outcome was recorded.';
COMMENT ON COLUMN makegood.step_attempts.worker IS 'Who made it.';

COMMENT ON TABLE makegood.idempotency_keys IS 'The key of every outside effect, stored with a hash of its request before the call.';
COMMENT ON COLUMN makegood.idempotency_keys.key IS 'As sent to the provider; never contains a run, a try, a time or chance.';
COMMENT ON COLUMN makegood.idempotency_keys.operation IS 'What it does, for example charge.';
COMMENT ON COLUMN makegood.idempotency_keys.request_hash IS 'SHA-256 of the request; the same key with another one is refused.';
COMMENT ON COLUMN makegood.idempotency_keys.status IS 'Recovery point: intent, sent, known, recorded.';
COMMENT ON COLUMN makegood.idempotency_keys.response IS 'The answer, once known.';
COMMENT ON COLUMN makegood.idempotency_keys.first_sent_at IS 'When it was first sent; a provider forgets keys some time after.';
COMMENT ON COLUMN makegood.idempotency_keys.created_at IS 'When the intent was stored.';
COMMENT ON COLUMN makegood.idempotency_keys.expires_at IS 'A recorded key may be forgotten after this.';
COMMENT ON COLUMN makegood.idempotency_keys.caller IS 'Who is calling now, outside any workflow.';
COMMENT ON COLUMN makegood.idempotency_keys.caller_until IS 'Until when the others wait for that caller.';

COMMENT ON TABLE makegood.compensations IS 'One undo that is owed, with its own attempts. Never dropped.';
COMMENT ON COLUMN makegood.compensations.id IS 'Follows from workflow and step.';
COMMENT ON COLUMN makegood.compensations.workflow_id IS 'The workflow.';
COMMENT ON COLUMN makegood.compensations.step IS 'The step to undo.';
COMMENT ON COLUMN makegood.compensations.position IS 'Of the step in its workflow; the highest is undone first.';
COMMENT ON COLUMN makegood.compensations.state IS 'pending, running, succeeded, held (for a person).';
COMMENT ON COLUMN makegood.compensations.attempts IS 'How often it was begun.';
COMMENT ON COLUMN makegood.compensations.next_attempt_at IS 'Not tried before this.';
COMMENT ON COLUMN makegood.compensations.idempotency_key IS 'Of its outside effect.';
COMMENT ON COLUMN makegood.compensations.amount_minor IS 'Money it gives back.';
COMMENT ON COLUMN makegood.compensations.currency IS 'ISO 4217.';
COMMENT ON COLUMN makegood.compensations.last_error IS 'Why it did not succeed yet.';
COMMENT ON COLUMN makegood.compensations.result IS 'The answer it succeeded with.';
COMMENT ON COLUMN makegood.compensations.created_at IS 'When it became owed.';
COMMENT ON COLUMN makegood.compensations.succeeded_at IS 'When it was done.';

COMMENT ON TABLE makegood.outbox IS 'Messages that leave in the transaction that caused them.';
COMMENT ON COLUMN makegood.outbox.id IS 'Order of writing.';
COMMENT ON COLUMN makegood.outbox.topic IS 'Where it goes.';
COMMENT ON COLUMN makegood.outbox.key IS 'One message per topic and key.';
COMMENT ON COLUMN makegood.outbox.payload IS 'What it says.';
COMMENT ON COLUMN makegood.outbox.headers IS 'Trace and other headers.';
COMMENT ON COLUMN makegood.outbox.created_at IS 'When it was written.';
COMMENT ON COLUMN makegood.outbox.published_at IS 'When it was delivered; empty means not yet.';

COMMENT ON TABLE makegood.operator_actions IS 'What people did, and why. Append-only, written with the action itself.';
COMMENT ON COLUMN makegood.operator_actions.id IS 'Order of writing.';
COMMENT ON COLUMN makegood.operator_actions.actor IS 'Who.';
COMMENT ON COLUMN makegood.operator_actions.action IS 'What.';
COMMENT ON COLUMN makegood.operator_actions.subject IS 'To what: an entity, a run, a finding.';
COMMENT ON COLUMN makegood.operator_actions.reason IS 'Why, in their words.';
COMMENT ON COLUMN makegood.operator_actions.details IS 'What it looked like when they did it.';
COMMENT ON COLUMN makegood.operator_actions.database_role IS 'The login it came through.';
COMMENT ON COLUMN makegood.operator_actions.acted_at IS 'When, by the clock of the database.';

COMMENT ON COLUMN makegood.alembic_version.version_num IS 'The last migration that ran.';

COMMENT ON FUNCTION makegood.check_new_transitions() IS 'Trigger: a transition continues its chain along a legal edge, and a terminal state comes last.';
COMMENT ON FUNCTION makegood.check_execution_follows_chain() IS 'Trigger, at commit: a workflow''s state is that of its last transition.';
COMMENT ON FUNCTION makegood.refuse_rewriting_identity() IS 'Trigger: what a workflow is about never changes, and its fence never falls.';
COMMENT ON FUNCTION makegood.check_currency_exists() IS 'Trigger: a currency is one of ISO 4217.';
COMMENT ON FUNCTION makegood.refuse_deleting_workflows() IS 'Guard: a workflow is never deleted.';
COMMENT ON FUNCTION makegood.refuse_rewriting_what_is_owed() IS 'Trigger: an undo that is owed is neither changed nor dropped.';
COMMENT ON FUNCTION makegood.refuse_rewriting_history() IS 'Trigger: an append-only table is only appended to.';
COMMENT ON FUNCTION makegood.check_new_compensation() IS 'Trigger: a finished workflow owes nothing.';
COMMENT ON FUNCTION makegood.check_compensation_moves() IS 'Trigger: an undo that is done stays done.';
COMMENT ON FUNCTION makegood.check_key_moves() IS 'Trigger: a key never goes back, and once sent never stands for something else.';
