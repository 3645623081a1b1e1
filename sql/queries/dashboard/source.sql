-- How far the provider's books are here, per collection.
SELECT s.provider, s.collection, s.watermark, s.error, s.updated_at
  FROM makegood.provider_sync s
 ORDER BY s.provider, s.collection
 LIMIT 100;
