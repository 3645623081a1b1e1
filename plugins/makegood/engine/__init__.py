"""The durable engine: takes a claimed workflow from state to state, and keeps its promises when it dies."""
