-- How many undos are owed, and their money, held or not.
SELECT e.held_at IS NOT NULL AS held, c.currency, count(*) AS undos, sum(c.amount_minor)::bigint AS amount_minor
  FROM makegood.compensations c
  JOIN makegood.workflow_executions e ON e.id = c.workflow_id
 WHERE c.state <> 'succeeded'
 GROUP BY 1, 2
 ORDER BY amount_minor DESC NULLS LAST
 LIMIT 500;
