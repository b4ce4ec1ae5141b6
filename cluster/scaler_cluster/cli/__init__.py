"""The commands. Each runs in its own process what an embedded cluster has as a child."""
