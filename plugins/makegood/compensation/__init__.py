"""Undos that are due: tried again in reverse order, patiently, until each is done or held for a person."""
