-- Runs last and grants anew, so that what a migration added is covered. The jobs' role writes through
-- functions only: no table can be changed around the guards, and no history rewritten.
REVOKE ALL ON SCHEMA makegood FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA makegood FROM PUBLIC, makegood_jobs, makegood_read;
GRANT USAGE ON SCHEMA makegood TO makegood_jobs, makegood_read;
GRANT SELECT ON ALL TABLES IN SCHEMA makegood TO makegood_jobs, makegood_read;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA makegood TO makegood_jobs;
GRANT EXECUTE ON FUNCTION makegood.timeline(text, text) TO makegood_read;
