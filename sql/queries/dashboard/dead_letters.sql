-- The dead letters that failed in one way, the newest first; without their payload, which has personal data.
SELECT id, source, message_key, entity_id, error_type, error, attempts, redrives, state, first_failed_at, last_failed_at,
       note, (headers->>'amount_minor')::bigint AS amount_minor, headers->>'currency' AS currency,
       headers->>'state' AS workflow_state, headers->>'step' AS step
  FROM makegood.dead_letters
 WHERE signature = %(signature)s AND state = %(state)s AND source = %(source)s
   AND (%(after_time)s::timestamptz IS NULL OR (last_failed_at, id) < (%(after_time)s, %(after_id)s::uuid))
 ORDER BY last_failed_at DESC, id DESC
 LIMIT %(limit)s;
