-- The last run of each scheduled job that was to act, and how long ago that was; empty columns for one that never ran.
SELECT j.job, r.id, r.state, r.error, r.started_at, extract(epoch FROM now() - r.started_at)::float8 AS ago_seconds
  FROM unnest(%(jobs)s::text[]) AS j(job)
  LEFT JOIN LATERAL (
    SELECT * FROM makegood.job_runs o
     WHERE o.job = j.job AND (o.parameters->>'dry_run') IS DISTINCT FROM 'true'
     ORDER BY o.started_at DESC LIMIT 1) AS r ON true
 ORDER BY j.job;
