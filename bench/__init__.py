"""Benchmarks: each figure is a ratio measured in one run, next to what a user would pick instead."""
