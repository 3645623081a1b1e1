-- How many decimals each currency has.
SELECT code, exponent FROM makegood.currencies;
