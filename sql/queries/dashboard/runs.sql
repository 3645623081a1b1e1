-- Runs of jobs, the newest first; ids rise with time. One page before a given run (keyset).
SELECT id, job, run_key, triggered_by, parameters, state, counts, parts, error, started_at, finished_at,
       extract(epoch FROM coalesce(finished_at, now()) - started_at)::float8 AS took_seconds
  FROM makegood.job_runs
 WHERE (%(job)s::text IS NULL OR job = %(job)s)
   AND (%(before_id)s::uuid IS NULL OR id < %(before_id)s::uuid)
 ORDER BY id DESC
 LIMIT %(limit)s;
