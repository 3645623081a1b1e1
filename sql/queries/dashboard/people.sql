-- What each person may do now, for all who look at once; who was shut out is not among them.
SELECT login, roles FROM makegood.people WHERE NOT disabled ORDER BY login LIMIT %(limit)s;
