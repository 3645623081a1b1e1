-- What a run may rely on, and what it looks at again.

-- Books that come as files have no fetch that moves their watermark, and are older when they come.
ALTER TABLE makegood.provider_sync ADD COLUMN fetched_at timestamptz;
UPDATE makegood.provider_sync SET fetched_at = updated_at WHERE fence > 0 AND watermark IS NOT NULL;
COMMENT ON COLUMN makegood.provider_sync.fetched_at IS
  'When a fetch last came to its end; null where none ever did: then the watermark is what a person said of files.';
