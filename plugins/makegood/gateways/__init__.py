"""The only place that talks to the outside. Each gateway sorts answers into outcomes; none of them retries."""
