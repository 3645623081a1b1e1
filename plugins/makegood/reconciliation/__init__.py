"""The provider's books against ours: fetched, matched, put right, reported."""
