"""What `make up` runs on one machine: the embedded PostgreSQL, and the services under one supervisor."""
