-- Providers that are down: since when, and when somebody may try again.
SELECT provider, state, opened_at, coalesce(retry_at, probe_until) AS retry_at, failed_probes, error,
       extract(epoch FROM now() - opened_at)::float8 AS open_seconds
  FROM makegood.breakers
 WHERE state <> 'closed'
 ORDER BY opened_at
 LIMIT 100;
