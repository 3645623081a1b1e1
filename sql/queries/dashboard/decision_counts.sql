-- How often one run decided what.
SELECT d.decision, count(*) AS workflows
  FROM makegood.job_runs r
  JOIN makegood.job_decisions d ON d.run_id = r.id AND d.decided_at >= r.started_at
                               AND d.decided_at <= greatest(r.expires_at, r.finished_at)
 WHERE r.id = %(run_id)s::uuid
 GROUP BY d.decision
 ORDER BY workflows DESC;
