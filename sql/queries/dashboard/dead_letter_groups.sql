-- Dead letters by what went wrong, the most frequent first.
SELECT signature, source, count(*) AS letters, min(first_failed_at) AS oldest, max(last_failed_at) AS newest,
       sum((headers->>'amount_minor')::bigint)::bigint AS amount_minor, min(headers->>'currency') AS currency,
       count(DISTINCT headers->>'currency') AS currencies
  FROM makegood.dead_letters
 WHERE state = %(state)s
 GROUP BY signature, source
 ORDER BY letters DESC, oldest
 LIMIT %(limit)s;
