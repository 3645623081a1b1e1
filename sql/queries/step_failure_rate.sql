-- Metric 2: the share of attempts per step that did not succeed, in the last day. The weak link comes first.
SELECT step, kind, count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'failed') AS failed,
       count(*) FILTER (WHERE outcome = 'unknown') AS unknown,
       round(1.0 * count(*) FILTER (WHERE outcome IN ('failed', 'unknown')) / count(*), 4) AS failure_rate
  FROM step_attempts
 WHERE started_at > NOW() - INTERVAL '1 day' AND outcome IS NOT NULL
 GROUP BY step, kind
 ORDER BY failure_rate DESC, step;
