-- Whether anybody can write to this server; the session itself is read-only by choice, so its own setting says nothing.
SELECT pg_is_in_recovery() OR coalesce((SELECT reset_val = 'on' FROM pg_settings
         WHERE name = 'default_transaction_read_only'), false) AS read_only;
