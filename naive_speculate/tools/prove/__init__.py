"""Whether a server's samples have the distribution that its model states."""
