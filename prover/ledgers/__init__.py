"""A day of orders and of the provider's books with known discrepancies in them, and the answers beside.

The answers come from how a case was planted. Nothing here evaluates a rule or shares code with the matcher.
"""
