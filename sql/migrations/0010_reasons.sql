-- Whoever carries out what was approved says why, too: act_carry_out (sql/functions/act.sql) takes their reason, so the
-- one without it goes.
DROP FUNCTION IF EXISTS makegood.act_carry_out(text, uuid, uuid, double precision);
