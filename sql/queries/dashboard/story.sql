-- Everything known about one order, one document per workflow.
SELECT makegood.timeline(%(order)s) AS story LIMIT 20;
