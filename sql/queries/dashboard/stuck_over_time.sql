-- The trend of metric 3: how many had made no progress for five minutes at each point of the period.
WITH spans AS MATERIALIZED (
  SELECT t.transitioned_at + interval '5 minutes' AS began, coalesce(n.transitioned_at, 'infinity') AS ended
    FROM makegood.workflow_transitions t
    LEFT JOIN makegood.workflow_transitions n ON n.workflow_id = t.workflow_id AND n.seq = t.seq + 1
   WHERE t.to_state NOT IN ('completed', 'failed', 'compensated')
     AND coalesce(n.transitioned_at, 'infinity') > t.transitioned_at + interval '5 minutes'
     AND coalesce(n.transitioned_at, 'infinity') > now() - make_interval(secs => %(period_seconds)s)
     AND (%(workflow_type)s::text IS NULL OR EXISTS (
           SELECT FROM makegood.workflow_executions e
            WHERE e.id = t.workflow_id AND e.workflow_type = %(workflow_type)s)))
SELECT k.slice, count(s.began) AS stuck
  FROM generate_series(date_bin(make_interval(secs => %(slice_seconds)s),
                                now() - make_interval(secs => %(period_seconds)s), '2000-01-01Z'),
                       now(), make_interval(secs => %(slice_seconds)s)) AS k(slice)
  LEFT JOIN spans s ON s.began <= k.slice AND s.ended > k.slice
 GROUP BY k.slice;
