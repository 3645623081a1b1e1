-- Where one order was when, and who moved it.
SELECT seq, from_state, to_state, triggered_by, metadata, transitioned_at
  FROM workflow_transitions
 WHERE entity_id = 'order-123'
 ORDER BY workflow_id, seq;
