-- Metric 1: how long workflows that finished in the last day took, per type and end.
SELECT workflow_type, current_state, count(*) AS workflows,
       percentile_cont(0.50) WITHIN GROUP (ORDER BY finished_at - created_at) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY finished_at - created_at) AS p95,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY finished_at - created_at) AS p99
  FROM workflow_executions
 WHERE finished_at > NOW() - INTERVAL '1 day'
 GROUP BY workflow_type, current_state
 ORDER BY workflow_type, current_state;
