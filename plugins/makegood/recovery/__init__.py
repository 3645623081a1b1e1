"""Stuck workflows: found past their step's deadline, decided about one by one, and taken on to their end."""
