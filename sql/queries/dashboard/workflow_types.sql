-- The workflow types there are.
SELECT name FROM makegood.workflow_types ORDER BY name LIMIT 200;
