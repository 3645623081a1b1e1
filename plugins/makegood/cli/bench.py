"""``makegood bench``: figures as ratios, measured in one run."""
