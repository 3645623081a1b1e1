-- How each batch of a run ended, under the name that it has on every try: a try that failed is unsaid by the one that
-- succeeds, and a batch that was killed on every try has not ended.
ALTER TABLE makegood.job_runs
  ADD COLUMN batches jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(batches) = 'object');

COMMENT ON COLUMN makegood.job_runs.batches IS
  'The batches that were planned, by name: expected, running, done or failed, as the last try of each left it.';
