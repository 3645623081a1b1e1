-- Of these workflows, those that are held this moment: how many, since when, and their money.
SELECT count(*) AS workflows, e.currency, sum(e.amount_minor)::bigint AS amount_minor
  FROM makegood.workflow_executions e
  JOIN unnest(%(types)s::text[], %(orders)s::text[]) AS i(workflow_type, entity_id)
    ON i.workflow_type = e.workflow_type AND i.entity_id = e.entity_id
 WHERE e.held_at IS NOT NULL
 GROUP BY e.currency
 ORDER BY workflows DESC;
