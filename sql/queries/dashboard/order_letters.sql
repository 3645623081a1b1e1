-- Messages about one order that failed too often; its workflows' own letters are in its story. Without the payload.
SELECT id, broker, message_id, error_type, error, attempts, redrives, state, last_failed_at, note
  FROM makegood.dead_letters
 WHERE entity_id = %(order)s AND source = 'message'
 ORDER BY last_failed_at DESC, id
 LIMIT 50;
