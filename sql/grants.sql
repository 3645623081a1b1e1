-- Runs last and grants anew, so that what a migration added is covered. The jobs' role writes through
-- functions only: no table can be changed around the guards, and no history rewritten. The dashboard's acting role
-- sees no table at all and calls what is named here, each of which reads the acting person's rights itself.
REVOKE ALL ON SCHEMA makegood FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read, makegood_act;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read, makegood_act;
GRANT USAGE ON SCHEMA makegood TO makegood_jobs, makegood_read, makegood_act;
GRANT SELECT ON ALL TABLES IN SCHEMA makegood TO makegood_jobs, makegood_read;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA makegood TO makegood_jobs;
GRANT EXECUTE ON FUNCTION makegood.timeline(text, text) TO makegood_read;
-- What the pages ask, and counting: it changes no number, only what the next look at them costs.
GRANT EXECUTE ON FUNCTION makegood.duration_cell(interval), makegood.rollup_period(integer), makegood.rollup_tail(),
  makegood.metric_ends(integer, integer, text), makegood.metric_attempts(integer, integer, text),
  makegood.metric_stuck(integer, integer, text), makegood.roll_up(integer) TO makegood_read;
GRANT EXECUTE ON FUNCTION makegood.act_release(text, uuid, text, text, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_release_group(text, uuid, jsonb, text, integer, double precision) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_retry_undo(text, uuid, text, text, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_settle(text, uuid, text, text, text, text, text, bigint, double precision)
  TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_carry_out(text, uuid, uuid, text, double precision) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_cancel(text, uuid, text, text, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_give_approval(text, uuid, uuid, text, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_refuse_approval(text, uuid, uuid, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_mark_finding(text, uuid, uuid, integer, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_approve_remedy(text, uuid, uuid, text, text) TO makegood_act;
GRANT EXECUTE ON FUNCTION makegood.act_refuse_remedy(text, uuid, uuid, text) TO makegood_act;
