-- Runs last and grants anew, so that what a migration added is covered. The jobs' role writes through
-- functions only: no table can be changed around the guards, and no history rewritten.
REVOKE ALL ON SCHEMA makegood FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read;
GRANT USAGE ON SCHEMA makegood TO makegood_jobs, makegood_read;
GRANT SELECT ON ALL TABLES IN SCHEMA makegood TO makegood_jobs, makegood_read;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA makegood TO makegood_jobs;
GRANT EXECUTE ON FUNCTION makegood.timeline(text, text) TO makegood_read;
-- What the pages ask, and counting: it changes no number, only what the next look at them costs.
GRANT EXECUTE ON FUNCTION makegood.duration_cell(interval), makegood.rollup_period(integer), makegood.rollup_tail(),
  makegood.metric_ends(integer, integer, text), makegood.metric_attempts(integer, integer, text),
  makegood.metric_stuck(integer, integer, text), makegood.roll_up(integer) TO makegood_read;
