-- Counts some of what has ended; it changes no number, only what the next look costs.
SELECT makegood.roll_up(%(batch)s) AS counted;
