-- Who may do what. The owner cannot log in: nobody works as it except a migration. `jobs` runs the engine
-- and the scheduled jobs, `read` looks. Give them a password (ALTER ROLE … LOGIN PASSWORD …) or grant
-- them to a login of your own.
DO $$
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
  IF NOT pg_catalog.pg_has_role(current_user, 'makegood_owner', 'MEMBER')
     OR NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
    EXECUTE pg_catalog.format('GRANT makegood_owner TO %I', current_user);
  END IF;
END
$$;
CREATE SCHEMA IF NOT EXISTS makegood AUTHORIZATION makegood_owner;
COMMENT ON SCHEMA makegood IS 'Workflows, their transitions, and everything needed to make them good.';
-- The published queries name no schema; these roles find it.
ALTER ROLE makegood_jobs SET search_path = makegood, public;
ALTER ROLE makegood_read SET search_path = makegood, public;
