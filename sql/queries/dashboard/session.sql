-- A session of the dashboard: it only reads, gives up in time, and steps down to the reading role where it may. It keeps
-- who made it read-only before, for server.sql.
SELECT set_config('makegood.read_only_by', (SELECT source FROM pg_settings
         WHERE name = 'default_transaction_read_only'), false),
       set_config('default_transaction_read_only', 'on', false), set_config('statement_timeout', %(timeout)s, false),
       set_config('search_path', 'makegood, pg_catalog', false), set_config('timezone', 'UTC', false),
       (SELECT set_config('role', r.rolname, false) FROM pg_roles r
         WHERE r.rolname = 'makegood_read' AND current_user <> r.rolname AND pg_has_role(current_user, r.oid, 'MEMBER'));
