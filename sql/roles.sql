-- Who may do what. The owner cannot log in: nobody works as it except a migration. `jobs` runs the engine
-- and the scheduled jobs, `read` looks, `act` calls what people may do through the dashboard. Give them a password (ALTER ROLE … LOGIN PASSWORD …) or grant
-- them to a login of your own.
DO $$
DECLARE
  v_role text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'makegood_owner') THEN
    CREATE ROLE makegood_owner NOLOGIN NOINHERIT;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'makegood_jobs') THEN
    CREATE ROLE makegood_jobs NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'makegood_read') THEN
    CREATE ROLE makegood_read NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'makegood_act') THEN
    CREATE ROLE makegood_act NOLOGIN;
  END IF;
  IF NOT pg_catalog.pg_has_role(current_user, 'makegood_owner', 'MEMBER')
     OR NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
    EXECUTE pg_catalog.format('GRANT makegood_owner TO %I', current_user);
  END IF;
  -- The published queries name no schema; these roles find it. Only where it is not so already: roles belong
  -- to the whole server, and two databases migrated at once would trip over the same row.
  FOREACH v_role IN ARRAY ARRAY['makegood_jobs', 'makegood_read'] LOOP
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
                    WHERE r.rolname = v_role AND s.setdatabase = 0
                      AND 'search_path=makegood, public' = ANY (s.setconfig)) THEN
      EXECUTE pg_catalog.format('ALTER ROLE %I SET search_path = makegood, public', v_role);
    END IF;
  END LOOP;
END
$$;
CREATE SCHEMA IF NOT EXISTS makegood AUTHORIZATION makegood_owner;
COMMENT ON SCHEMA makegood IS 'Workflows, their transitions, and everything needed to make them good.';
