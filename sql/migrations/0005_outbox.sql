-- The outbox with many readers: each topic is found by itself, and what was delivered goes when its time is over.

-- It returns one more count now; functions are installed anew after the migration.
DROP FUNCTION IF EXISTS makegood.tidy(integer, integer);

-- Who takes one topic does not look through those of another that nobody takes.
DROP INDEX makegood.outbox_unpublished;
CREATE INDEX outbox_unpublished ON makegood.outbox (topic, id) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON makegood.outbox (published_at) WHERE published_at IS NOT NULL;
