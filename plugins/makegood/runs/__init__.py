"""Runs of scheduled jobs: what they were asked, what they decided, and what they came to."""
