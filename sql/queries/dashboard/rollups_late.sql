-- Whether ends wait to be counted although no job came for two minutes: then whoever looks counts some of them.
SELECT p.rolled_at < now() - interval '2 minutes' AND EXISTS (
         SELECT FROM makegood.workflow_transitions t
          WHERE (t.xact, t.id) > (p.xact, p.transition_id) AND t.to_state IN ('completed', 'failed', 'compensated')
          LIMIT 1) AS late
  FROM makegood.rollup_position p;
