-- Who may act. Every change has who, why and its line in operator_actions in the same transaction.

-- Adds roles to a person, and lets somebody back in who was shut out.
CREATE OR REPLACE FUNCTION makegood.grant_person(p_login text, p_roles text[], p_actor text, p_reason text)
RETURNS TABLE (login text, roles text[], disabled boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_login text := lower(btrim(p_login));
  p makegood.people;
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  PERFORM makegood.check_roles(p_roles);
  INSERT INTO makegood.people AS u (login, roles, granted_by, granted_at)
  VALUES (v_login, ARRAY(SELECT DISTINCT r FROM unnest(p_roles) r ORDER BY r), p_actor, clock_timestamp())
  ON CONFLICT ON CONSTRAINT people_pkey DO UPDATE
     SET roles = ARRAY(SELECT DISTINCT r FROM unnest(u.roles || p_roles) r ORDER BY r), disabled = false,
         granted_by = p_actor, granted_at = clock_timestamp()
  RETURNING * INTO p;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (p_actor, 'grant', p.login, left(btrim(p_reason), 2000),
          jsonb_build_object('granted', p_roles, 'roles', p.roles));
  RETURN QUERY SELECT p.login, p.roles, p.disabled;
END
$$;
COMMENT ON FUNCTION makegood.grant_person(text, text[], text, text) IS
  'Gives roles to a login, with who granted them and why; the roles it has then.';

-- Takes roles away; all of them, and the person, when none is named. Waits for an action that is under way as that
-- person, and is seen by the next one. No row comes back for a login that nobody knows.
CREATE OR REPLACE FUNCTION makegood.revoke_person(p_login text, p_roles text[], p_actor text, p_reason text)
RETURNS TABLE (login text, roles text[], disabled boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p makegood.people;
  v_left text[];
BEGIN
  PERFORM makegood.check_actor(p_actor, p_reason);
  IF p_roles IS NOT NULL THEN
    PERFORM makegood.check_roles(p_roles);
  END IF;
  SELECT * INTO p FROM makegood.people AS r WHERE r.login = lower(btrim(p_login)) FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_left := CASE WHEN p_roles IS NULL THEN '{}'
                 ELSE ARRAY(SELECT r FROM unnest(p.roles) r WHERE r <> ALL (p_roles) ORDER BY r) END;
  UPDATE makegood.people AS u
     SET roles = v_left, disabled = u.disabled OR cardinality(v_left) = 0, granted_by = p_actor,
         granted_at = clock_timestamp()
   WHERE u.login = p.login RETURNING * INTO p;
  INSERT INTO makegood.operator_actions (actor, action, subject, reason, details)
  VALUES (p_actor, 'revoke', p.login, left(btrim(p_reason), 2000),
          jsonb_build_object('revoked', p_roles, 'roles', p.roles));
  RETURN QUERY SELECT p.login, p.roles, p.disabled;
END
$$;
COMMENT ON FUNCTION makegood.revoke_person(text, text[], text, text) IS
  'Takes roles from a login, or all of them; the roles it has then, or no row for a login nobody knows.';

CREATE OR REPLACE FUNCTION makegood.check_roles(p_roles text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_roles IS NULL OR cardinality(p_roles) = 0 OR NOT p_roles <@ '{viewer,engineer,operator,approver}' THEN
    RAISE EXCEPTION 'roles must be among viewer, engineer, operator and approver' USING ERRCODE = 'MG011';
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.check_roles(text[]) IS 'Refuses roles that do not exist, and none at all.';

-- The role is read in the transaction that acts, under a lock that a revoke waits for: whichever is first, wins.
CREATE OR REPLACE FUNCTION makegood.require_role(p_login text, p_role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p makegood.people;
BEGIN
  SELECT * INTO p FROM makegood.people AS r WHERE r.login = lower(btrim(p_login)) FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'nobody knows %', coalesce(p_login, '(no login)') USING ERRCODE = 'MG020',
      HINT = format('Somebody with the command line can run: makegood people grant LOGIN %s', p_role);
  END IF;
  IF p.disabled THEN
    RAISE EXCEPTION '% was shut out by % on %', p.login, p.granted_by, to_char(p.granted_at, 'YYYY-MM-DD HH24:MI TZ')
      USING ERRCODE = 'MG020', HINT = 'Ask that person.';
  END IF;
  IF NOT p_role = ANY (p.roles) THEN
    RAISE EXCEPTION '% has not the role %', p.login, p_role USING ERRCODE = 'MG020',
      HINT = format('Somebody with the command line can run: makegood people grant LOGIN %s', p_role);
  END IF;
END
$$;
COMMENT ON FUNCTION makegood.require_role(text, text) IS
  'Refuses (MG020) whoever has not this role now, and keeps it from being revoked until the transaction ends.';
