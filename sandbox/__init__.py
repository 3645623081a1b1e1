"""The shop in a box: payments (Stripe's API), inventory and shipping in one process, with faults on demand.

It is the oracle of every crash proof, so it shares no code with what it judges: nothing imports makegood.

    python -m sandbox --port 9900 --data .makegood/shop

``sandbox.client`` starts it as a real process and talks to its control API; ``sandbox/README.md`` lists the
whole interface.
"""
