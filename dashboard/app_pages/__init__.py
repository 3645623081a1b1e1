"""One file per page; each draws itself when it is opened."""
