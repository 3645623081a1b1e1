-- A session that acts: it gives up in time, and steps down to the acting role where it may.
SELECT set_config('statement_timeout', %(timeout)s, false), set_config('lock_timeout', %(lock_timeout)s, false),
       set_config('search_path', 'pg_catalog', false), set_config('timezone', 'UTC', false),
       (SELECT set_config('role', r.rolname, false) FROM pg_roles r
         WHERE r.rolname = 'makegood_act' AND current_user <> r.rolname AND pg_has_role(current_user, r.oid, 'MEMBER'));
