"""The dashboard: four metrics at a glance and every order's story. It reads, as the role that may do nothing else."""
