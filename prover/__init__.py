"""The prover: kills, stops and deceives real workers at every statement and call, and asks the shop's log.

A proof is a scenario (what kind of order), a point (the k-th statement or call of its worker) and a blow
(what is done to the worker there). After the blow other workers run, and the oracle compares the tables
with the shop's own log. Scheduled jobs join by giving a Job to ``prover.enumerate.prove``.
"""
