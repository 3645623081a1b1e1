-- What one person may do now; nothing for who was shut out.
SELECT roles FROM makegood.people WHERE login = %(login)s AND NOT disabled;
