-- Runs of the reconciliation, the newest first: one page after a given place (keyset).
SELECT r.id, r.kind, r.state, r.watermark, r.stale, r.looked_at, r.opened, r.closed, r.missed, r.error, r.started_at,
       r.finished_at, extract(epoch FROM coalesce(r.finished_at, now()) - r.started_at)::float8 AS took_seconds
  FROM makegood.reconciliation_runs r
 WHERE %(after_time)s::timestamptz IS NULL OR (r.started_at, r.id) < (%(after_time)s, %(after_id)s::uuid)
 ORDER BY r.started_at DESC, r.id DESC
 LIMIT %(limit)s;
