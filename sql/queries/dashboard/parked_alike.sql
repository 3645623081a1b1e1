-- Parked workflows that failed in one way, on their way forward or back, the oldest first, as far as one act takes them.
SELECT message_key AS workflow_type, entity_id
  FROM makegood.dead_letters
 WHERE signature = %(signature)s AND state = 'parked' AND source = %(source)s AND source <> 'message'
 ORDER BY last_failed_at, id
 LIMIT %(limit)s;
