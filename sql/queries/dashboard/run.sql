-- One run of a job.
SELECT id, job, run_key, triggered_by, parameters, state, counts, parts, error, started_at, finished_at,
       extract(epoch FROM coalesce(finished_at, now()) - started_at)::float8 AS took_seconds
  FROM makegood.job_runs
 WHERE id = %(run_id)s::uuid;
