"""Customers: live checkouts against the shop, with faults in the shop and crashes of the workers.

The only part of the sandbox that knows makegood. Orders are placed here; worker processes take them
through, and are killed now and then with whatever they have in hand.
"""
