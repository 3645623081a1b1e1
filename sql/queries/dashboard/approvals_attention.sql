-- What waits for a person's word: requests for a second person, and what was approved and not carried out yet. Approved
-- refunds are begun by a run.
SELECT action, state, currency, count(*) AS requests, sum(amount_minor)::bigint AS amount_minor,
       extract(epoch FROM now() - min(requested_at))::float8 AS oldest_seconds
  FROM makegood.approvals
 WHERE state IN ('requested', 'approved') AND expires_at > clock_timestamp() AND (action <> 'refund' OR state = 'requested')
 GROUP BY action, state, currency
 ORDER BY action, state DESC, amount_minor DESC NULLS LAST
 LIMIT 50;
