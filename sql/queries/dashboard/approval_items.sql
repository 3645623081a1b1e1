-- The orders of a group that was asked for: all that an approval of it is about.
SELECT i.entity_id
  FROM (SELECT details FROM makegood.acts WHERE approval_id = %(id)s ORDER BY acted_at LIMIT 1) a,
       jsonb_to_recordset(a.details->'items') AS i(entity_id text)
 LIMIT %(limit)s;
