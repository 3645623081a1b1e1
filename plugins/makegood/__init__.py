"""makegood finds orders stuck between two steps and makes them good."""

__version__ = "0.1.0"
