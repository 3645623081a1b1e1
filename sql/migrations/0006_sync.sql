-- Fetching the provider's books: how far each span of time has been read, what was refused, and files that were imported.

-- A span of `created` that is being read, newest first. What is here when a fetch begins was left by one that died.
CREATE TABLE makegood.provider_windows (
  provider text NOT NULL,
  collection text NOT NULL,
  from_at timestamptz NOT NULL,
  until_at timestamptz NOT NULL,
  top_id text,
  before_id text,
  last_id text,
  last_created_at timestamptz,
  done boolean NOT NULL DEFAULT false,
  pages bigint NOT NULL DEFAULT 0,
  error text CHECK (length(error) <= 2000),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (provider, collection, from_at),
  FOREIGN KEY (provider, collection) REFERENCES makegood.provider_sync (provider, collection),
  CHECK (from_at < until_at)
);
-- One row. Whoever puts rows into the provider's books has it: whether a charge is plain depends on rows that another
-- may be putting at this moment, and neither would see the other's.
CREATE TABLE makegood.provider_turn (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  turns bigint NOT NULL DEFAULT 0
);
INSERT INTO makegood.provider_turn DEFAULT VALUES;
CREATE TABLE makegood.provider_duplicates (
  provider text NOT NULL,
  collection text NOT NULL,
  id text NOT NULL,
  source text NOT NULL CHECK (length(source) BETWEEN 1 AND 300),
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (provider, collection, id, source)
);
CREATE INDEX provider_duplicates_seen ON makegood.provider_duplicates (seen_at);
CREATE TABLE makegood.provider_rejects (
  source text NOT NULL CHECK (length(source) BETWEEN 1 AND 300),
  position text NOT NULL CHECK (length(position) BETWEEN 1 AND 300),
  provider text NOT NULL,
  collection text NOT NULL,
  reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 1000),
  content text CHECK (length(content) <= 4000),
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (source, position)
);
-- Which payouts were asked what they are made of, to the last page.
CREATE TABLE makegood.provider_payouts_read (
  payout_id text PRIMARY KEY,
  read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE makegood.provider_imports (
  id uuid PRIMARY KEY,
  provider text NOT NULL CHECK (length(provider) BETWEEN 1 AND 100),
  fingerprint text NOT NULL UNIQUE CHECK (length(fingerprint) BETWEEN 1 AND 200),
  file_name text NOT NULL CHECK (length(file_name) BETWEEN 1 AND 255),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done')),
  fence bigint NOT NULL DEFAULT 1,
  lines_done bigint NOT NULL DEFAULT 0 CHECK (lines_done >= 0),
  counts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  CHECK ((state = 'done') = (finished_at IS NOT NULL))
);
-- The ids of a file that is being imported, so that the same one on a later line is known for what it is.
CREATE TABLE makegood.provider_import_ids (
  import_id uuid NOT NULL REFERENCES makegood.provider_imports (id) ON DELETE CASCADE,
  collection text NOT NULL,
  id text NOT NULL,
  line bigint NOT NULL,
  PRIMARY KEY (import_id, collection, id)
);

COMMENT ON TABLE makegood.provider_windows IS 'Spans of time that a fetch of the provider''s books is reading, and how far it is in each.';
COMMENT ON COLUMN makegood.provider_windows.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_windows.collection IS 'Which of them, as in provider_sync.';
COMMENT ON COLUMN makegood.provider_windows.from_at IS 'Objects created at or after this.';
COMMENT ON COLUMN makegood.provider_windows.until_at IS 'And before this.';
COMMENT ON COLUMN makegood.provider_windows.top_id IS 'The newest object that was seen in it.';
COMMENT ON COLUMN makegood.provider_windows.before_id IS 'The object before the last one: the next page is asked for after this.';
COMMENT ON COLUMN makegood.provider_windows.last_id IS 'The last object that was stored: the next page has to begin with it.';
COMMENT ON COLUMN makegood.provider_windows.last_created_at IS 'When that one was created: nothing newer may follow.';
COMMENT ON COLUMN makegood.provider_windows.done IS 'Read to its end, and both ends were asked for once more.';
COMMENT ON COLUMN makegood.provider_windows.pages IS 'Pages that were stored.';
COMMENT ON COLUMN makegood.provider_windows.error IS 'What was wrong with it when it was last read.';
COMMENT ON COLUMN makegood.provider_windows.updated_at IS 'When it last went on.';
COMMENT ON TABLE makegood.provider_turn IS 'One row, taken by whoever puts rows into the provider''s books.';
COMMENT ON COLUMN makegood.provider_turn.one IS 'Always true.';
COMMENT ON COLUMN makegood.provider_turn.turns IS 'How often it was taken.';
COMMENT ON TABLE makegood.provider_duplicates IS 'Provider ids that came twice in one input (D09); the second was dropped.';
COMMENT ON COLUMN makegood.provider_duplicates.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_duplicates.collection IS 'Which of them.';
COMMENT ON COLUMN makegood.provider_duplicates.id IS 'The provider''s id.';
COMMENT ON COLUMN makegood.provider_duplicates.source IS 'Where it came twice: sync, import:<id>, or what the caller named.';
COMMENT ON COLUMN makegood.provider_duplicates.seen_at IS 'When it was last seen.';
COMMENT ON TABLE makegood.provider_rejects IS 'What could not be taken into the provider''s books, kept aside with the reason.';
COMMENT ON COLUMN makegood.provider_rejects.source IS 'Where it came from, as in provider_duplicates.';
COMMENT ON COLUMN makegood.provider_rejects.position IS 'The line of a file, or the collection and the provider''s id.';
COMMENT ON COLUMN makegood.provider_rejects.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_rejects.collection IS 'Which of them.';
COMMENT ON COLUMN makegood.provider_rejects.reason IS 'Why.';
COMMENT ON COLUMN makegood.provider_rejects.content IS 'The line or row, cut to a bound.';
COMMENT ON COLUMN makegood.provider_rejects.seen_at IS 'When it was last refused.';
COMMENT ON TABLE makegood.provider_payouts_read IS 'Payouts whose balance transactions are all here.';
COMMENT ON COLUMN makegood.provider_payouts_read.payout_id IS 'The payout.';
COMMENT ON COLUMN makegood.provider_payouts_read.read_at IS 'When its last page was stored.';
COMMENT ON TABLE makegood.provider_imports IS 'Settlement reports that were imported; the same file again is the same row.';
COMMENT ON COLUMN makegood.provider_imports.id IS 'The import.';
COMMENT ON COLUMN makegood.provider_imports.provider IS 'Whose books.';
COMMENT ON COLUMN makegood.provider_imports.fingerprint IS 'A hash of the file and of how it is read.';
COMMENT ON COLUMN makegood.provider_imports.file_name IS 'Its name, without the folder.';
COMMENT ON COLUMN makegood.provider_imports.state IS 'running or done; one that died goes on where it was.';
COMMENT ON COLUMN makegood.provider_imports.fence IS 'Rises with each begin; a batch under an older one is refused.';
COMMENT ON COLUMN makegood.provider_imports.lines_done IS 'Lines up to here are stored or kept aside.';
COMMENT ON COLUMN makegood.provider_imports.counts IS 'What came of them so far.';
COMMENT ON COLUMN makegood.provider_imports.started_at IS 'When.';
COMMENT ON COLUMN makegood.provider_imports.finished_at IS 'When it ended.';
COMMENT ON TABLE makegood.provider_import_ids IS 'Ids that a running import has seen; empty once it is done.';
COMMENT ON COLUMN makegood.provider_import_ids.import_id IS 'The import.';
COMMENT ON COLUMN makegood.provider_import_ids.collection IS 'Which of the books.';
COMMENT ON COLUMN makegood.provider_import_ids.id IS 'The provider''s id.';
COMMENT ON COLUMN makegood.provider_import_ids.line IS 'The line that it came on first.';
