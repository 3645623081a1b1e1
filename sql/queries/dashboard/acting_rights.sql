-- Whether the session that acts could also read orders without a word of it: then it is no acting role's.
SELECT has_table_privilege('makegood.workflow_executions', 'SELECT') AS reads;
