-- Whether anybody can write to this server; the session itself is read-only by choice, so its own setting says nothing,
-- and what its login or its address set says nothing of others (it hides what the server would say, though).
SELECT pg_is_in_recovery() OR coalesce((SELECT s.reset_val = 'on' FROM pg_settings s
         WHERE s.name = 'default_transaction_read_only'
           AND coalesce(current_setting('makegood.read_only_by', true), '') NOT IN ('user', 'database user', 'client')),
         false) AS read_only;
